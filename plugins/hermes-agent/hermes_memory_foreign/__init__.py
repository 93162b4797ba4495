"""Providers written for Hermes Agent, run unmodified, and our providers inside Hermes Agent.

`adapter` speaks their hooks, `host_modules` offers the modules that they import, `environment` the HERMES_HOME that they
read, `registration` the `ctx` that they register with. `export` goes the other way: it puts a provider of ours into
Hermes Agent. No other package knows of Hermes Agent.
"""
