"""The addresses of the page: views that show something, and views that change something."""

from __future__ import annotations

from collections.abc import Mapping

from hermes_memory_ui.site import View
from hermes_memory_ui.views import (
    conversations,
    costs,
    facts,
    notes,
    people,
    providers,
    recall,
    search,
    settings,
    timeline,
    turns,
)

PAGES: Mapping[str, View] = {
    "/": notes.show,
    "/note": notes.show_note,
    "/timeline": timeline.show,
    "/change": timeline.change,
    "/sessions": conversations.show_all,
    "/session": conversations.show,
    "/session/delete": conversations.ask_deletion,
    "/session/export": conversations.export,
    "/search": search.show,
    "/recall": recall.show,
    "/turns": turns.show_all,
    "/turn": turns.show,
    "/costs": costs.show,
    "/providers": providers.show,
    "/provider": providers.show_one,
    "/settings": settings.show,
    "/outbox/drop": providers.ask_drop,
    "/facts": facts.show,
    "/fact": facts.show_fact,
    "/fact/delete": facts.ask_deletion,
    "/people": people.show,
    "/people/forget": people.ask_forget,
}

ACTIONS: Mapping[str, View] = {
    "/notes/add": notes.add,
    "/notes/replace": notes.replace,
    "/notes/remove": notes.remove,
    "/notes/merge": notes.merge,
    "/notes/allow": notes.allow,
    "/notes/pin": notes.pin,
    "/notes/accept": notes.accept,
    "/notes/reject": notes.reject,
    "/notes/undo": timeline.undo,
    "/notes/restore": timeline.restore,
    "/skills/undo": timeline.undo_skill,
    "/skills/restore": timeline.restore_skill,
    "/session/rename": conversations.rename,
    "/session/mark": conversations.mark,
    "/session/delete/confirmed": conversations.delete,
    "/providers/set-up": providers.set_up,
    "/providers/none": providers.choose_none,
    "/settings/save": settings.save,
    "/outbox/retry": providers.retry,
    "/outbox/drop/confirmed": providers.drop,
    "/fact/edit": facts.edit,
    "/fact/delete/confirmed": facts.delete,
    "/people/forget/confirmed": people.forget,
}
