from __future__ import annotations

from hermes_core import HermesHome
from hermes_memory_testing import RecordingManager, RecordingProvider, make_session, make_turn


def test_a_recording_manager_does_its_work_and_writes_it_down(hermes_home: HermesHome) -> None:
    manager, provider, session = RecordingManager(hermes_home), RecordingProvider(), make_session()
    manager.add_provider(provider)
    manager.initialize_all(session)
    manager.sync_all(make_turn("t1"), session)
    manager.flush(10)
    manager.shutdown_all()
    assert manager.methods == ["initialize_all", "sync_all", "flush", "shutdown_all"]
    assert provider.of("sync_turn")[0]["turn"].id == "t1"
