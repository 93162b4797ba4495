--
-- PostgreSQL database dump
--

-- Dumped from database version 16.4

SET client_encoding = 'UTF8';

CREATE TABLE public.checkpoints (
    thread_id text NOT NULL
    );

COPY public.checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob) FROM stdin;
w1		messages	1.0	msgpack	\\x91c78d0594bd6c616e67636861696e5f636f72652e6d657373616765732e68756d616eac48756d616e4d65737361676586a7636f6e74656e74a6706172743031b16164646974696f6e616c5f6b776172677380b1726573706f6e73655f6d6574616461746180a474797065a568756d616ea46e616d65c0a26964a27031b36d6f64656c5f76616c69646174655f6a736f6e
w1		messages	2.0	msgpack	\\x92c78d0594bd6c616e67636861696e5f636f72652e6d657373616765732e68756d616eac48756d616e4d65737361676586a7636f6e74656e74a6706172743031b16164646974696f6e616c5f6b776172677380b1726573706f6e73655f6d6574616461746180a474797065a568756d616ea46e616d65c0a26964a27031b36d6f64656c5f76616c69646174655f6a736f6ec7c10594ba6c616e67636861696e5f636f72652e6d657373616765732e6169a941494d65737361676589a7636f6e74656e74b37061727430320a6f662074776f206c696e6573b16164646974696f6e616c5f6b776172677380b1726573706f6e73655f6d6574616461746180a474797065a26169a46e616d65c0a26964a27032aa746f6f6c5f63616c6c7390b2696e76616c69645f746f6f6c5f63616c6c7390ae75736167655f6d65746164617461c0b36d6f64656c5f76616c69646174655f6a736f6e
w1		branch:to:agent	2.0	empty	\N
\.


COPY public.checkpoint_writes (thread_id, checkpoint_ns, checkpoint_id, task_id, idx, channel, type, blob, task_path) FROM stdin;
w1		2f0-2	t	0	messages	msgpack	\\x91c7b40594ba6c616e67636861696e5f636f72652e6d657373616765732e6169a941494d65737361676589a7636f6e74656e74a6706172743033b16164646974696f6e616c5f6b776172677380b1726573706f6e73655f6d6574616461746180a474797065a26169a46e616d65c0a26964a27033aa746f6f6c5f63616c6c7390b2696e76616c69645f746f6f6c5f63616c6c7390ae75736167655f6d65746164617461c0b36d6f64656c5f76616c69646174655f6a736f6e	
\.


COPY public.checkpoints (thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata) FROM stdin;
w1		2f0-1	\N	\N	{"v": 4, "id": "2f0-1", "ts": "2026-09-01T10:00:01+00:00", "channel_values": {}, "channel_versions": {"messages": "1.0"}, "versions_seen": {}, "updated_channels": null}	{}
w1		2f0-2	2f0-1	\N	{"v": 4, "id": "2f0-2", "ts": "2026-09-01T10:00:02+00:00", "channel_values": {"count": "part04"}, "channel_versions": {"messages": "2.0", "branch:to:agent": "2.0", "count": "1.0"}, "versions_seen": {}, "updated_channels": null}	{}
\.


COPY public.store (prefix, key, value, created_at, updated_at, expires_at, ttl_minutes) FROM stdin;
facts	k1	{"data": "part05"}	2026-09-01 10:00:00+00	2026-09-01 10:00:00.5+00	\N	\N
\.


-- PostgreSQL database dump complete
