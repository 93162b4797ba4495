"""The views of the page: functions of the site and a request that return what to show or do."""
