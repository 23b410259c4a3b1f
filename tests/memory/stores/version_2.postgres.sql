CREATE TABLE public.mempiler_amendments (
    tenant character varying NOT NULL,
    "user" character varying NOT NULL,
    number integer NOT NULL,
    what character varying NOT NULL,
    entry character varying NOT NULL,
    kind character varying NOT NULL,
    text text NOT NULL,
    sources text NOT NULL,
    at double precision NOT NULL,
    by character varying NOT NULL,
    undoes integer NOT NULL,
    new text
);
CREATE TABLE public.mempiler_changes (
    tenant character varying NOT NULL,
    "user" character varying NOT NULL,
    number integer NOT NULL,
    memory text NOT NULL,
    settled text
);
CREATE TABLE public.mempiler_forgotten (
    name character varying NOT NULL,
    number integer NOT NULL,
    at double precision NOT NULL,
    erased integer NOT NULL
);
CREATE TABLE public.mempiler_items (
    tenant character varying NOT NULL,
    "user" character varying NOT NULL,
    "position" integer NOT NULL,
    id character varying NOT NULL,
    digest character varying NOT NULL,
    json text NOT NULL,
    state character varying NOT NULL,
    attempts integer NOT NULL,
    error text NOT NULL,
    added double precision NOT NULL
);
CREATE TABLE public.mempiler_memories (
    tenant character varying NOT NULL,
    "user" character varying NOT NULL,
    json text NOT NULL,
    "position" integer NOT NULL,
    settled text,
    settled_position integer NOT NULL,
    speakers text NOT NULL,
    writer character varying NOT NULL,
    program character varying NOT NULL,
    embedder character varying NOT NULL,
    schema integer NOT NULL,
    updated double precision NOT NULL
);
CREATE TABLE public.mempiler_meta (
    name character varying NOT NULL,
    value character varying
);
CREATE TABLE public.mempiler_metadata (
    tenant character varying NOT NULL,
    "user" character varying NOT NULL,
    "position" integer NOT NULL,
    json text NOT NULL
);
CREATE TABLE public.mempiler_open_metadata (
    tenant character varying NOT NULL,
    "user" character varying NOT NULL,
    session character varying NOT NULL,
    json text NOT NULL
);
CREATE TABLE public.mempiler_open_turns (
    tenant character varying NOT NULL,
    "user" character varying NOT NULL,
    session character varying NOT NULL,
    number integer NOT NULL,
    json text NOT NULL,
    added double precision NOT NULL
);
CREATE TABLE public.mempiler_rebuilds (
    tenant character varying NOT NULL,
    "user" character varying NOT NULL,
    writer character varying NOT NULL,
    begun integer NOT NULL,
    since double precision NOT NULL
);
CREATE TABLE public.mempiler_texts (
    tenant character varying NOT NULL,
    "user" character varying NOT NULL,
    base character varying NOT NULL,
    memory text NOT NULL,
    settled text
);
CREATE TABLE public.mempiler_turns (
    tenant character varying NOT NULL,
    "user" character varying NOT NULL,
    turn character varying NOT NULL,
    "position" integer NOT NULL
);
CREATE TABLE public.mempiler_users (
    tenant character varying NOT NULL,
    "user" character varying NOT NULL,
    next_position integer NOT NULL,
    version character varying NOT NULL,
    worker character varying NOT NULL,
    claimed_until double precision NOT NULL
);
CREATE TABLE public.mempiler_vectors (
    tenant character varying NOT NULL,
    "user" character varying NOT NULL,
    key bytea NOT NULL,
    vector bytea NOT NULL
);
INSERT INTO public.mempiler_amendments VALUES ('default', 'ada', 1, 'update', 's1:1', 'turn', 'Ada: I moved to Lisbon.', '["s1:1"]', 1735787045, 'Ada', 0, 'Ada: I moved to Porto.');
INSERT INTO public.mempiler_changes VALUES ('default', 'ada', 1, '{"words": {"items": [[1, 0, ["b"]]]}}', '{"words": {"value": ["answered"]}}');
INSERT INTO public.mempiler_forgotten VALUES ('1ce96032be88a7d1fe7790c622c71a3ff1a6049bfe7d3bcbf524e9ad3fe6e7da', 1, 1795639390.670958, 1);
INSERT INTO public.mempiler_items VALUES ('default', 'ada', 3, 's3', '6722bc33367bbbef43ddc52decf1b69e2b8fddc6a19a5591875680193532c81e', '{"id":"s3","time":null,"turns":[{"id":"s3:1","speaker":"Ada","text":"It waits.","caption":null,"time":null}],"kind":"session"}', 'queued', 0, '', 1795639390.514714);
INSERT INTO public.mempiler_items VALUES ('default', 'ada', 1, 's1', '05c7c6a1e3a5463382add84d94e1ae216b67e6de7aff0f968427604d0e60561f', '{"id":"s1","time":null,"turns":[{"id":"s1:1","speaker":"Ada","text":"I moved to Lisbon.","caption":null,"time":null},{"id":"s1:2","speaker":"Ada","text":"I have a dog.","caption":null,"time":null}],"kind":"session"}', 'remembered', 0, '', 1795639390.487353);
INSERT INTO public.mempiler_items VALUES ('default', 'ada', 2, 's2', '9851520e96bd6d5046793fccbc80d9189561502f32c706fdad0e7c7aa0684dd2', '{"id":"s2","time":null,"turns":[{"id":"s2:1","speaker":"Ada","text":"The dog is called Rex.","caption":null,"time":null}],"kind":"session"}', 'remembered', 0, 'note of s2', 1795639390.504639);
INSERT INTO public.mempiler_items VALUES ('default', 'old', 1, 'D1', '4e9ddc634dc0ce411f6fdf035e89822033d0f8c8edc1f8a062b11129078db539', '{"id":"D1","time":null,"turns":[{"id":"D1:1","speaker":"Ada","text":"Written before there were changes.","caption":null,"time":null}],"kind":"session"}', 'remembered', 0, '', 1795639390.603105);
INSERT INTO public.mempiler_items VALUES ('acme', 'alan', 1, 't1', '0b6bc13effeccd76879a9499d5385d3e4034ce4212858c257e4c225e9ba4e3b5', '{"id":"t1","time":null,"turns":[{"id":"t1:1","speaker":"Ada","text":"Not to be read.","caption":null,"time":null}],"kind":"session"}', 'queued', 0, '', 1795639390.592009);
INSERT INTO public.mempiler_memories VALUES ('default', 'ada', '', 2, NULL, 2, '["Ada", "Bo"]', 'w', 'p', 'e', 2, 1795639390.542691);
INSERT INTO public.mempiler_memories VALUES ('default', 'old', '{"words": ["old"]}', 1, NULL, 1, '["Ada"]', 'w', 'p', 'e', 2, 1795639390.612439);
INSERT INTO public.mempiler_meta VALUES ('schema', '2');
INSERT INTO public.mempiler_meta VALUES ('forgets', '1');
INSERT INTO public.mempiler_metadata VALUES ('default', 'ada', 1, '{"channel": "phone", "year": 2025}');
INSERT INTO public.mempiler_metadata VALUES ('default', 'ada', 3, '{"channel": "mail"}');
INSERT INTO public.mempiler_open_metadata VALUES ('default', 'ada', 'open', '{"n": 2}');
INSERT INTO public.mempiler_open_turns VALUES ('default', 'ada', 'open', 1, '{"id":"open:1","speaker":"Ada","text":"It goes on.","caption":null,"time":null}', 1795639390.547968);
INSERT INTO public.mempiler_open_turns VALUES ('default', 'ada', 'open', 2, '{"id":"open:2","speaker":"Bo","text":"It does.","caption":null,"time":null}', 1795639390.558755);
INSERT INTO public.mempiler_open_turns VALUES ('default', 'ada', 'bare', 1, '{"id":"bare:1","speaker":"Ada","text":"Nothing was said of this one.","caption":null,"time":null}', 1795639390.570068);
INSERT INTO public.mempiler_rebuilds VALUES ('default', 'ada', 'w2', 0, 1795639390.620069);
INSERT INTO public.mempiler_rebuilds VALUES ('acme', 'alan', 'w2', 1, 1795639390.621088);
INSERT INTO public.mempiler_texts VALUES ('default', 'ada', 'base-1', '{"words": ["a"]}', '{"words": []}');
INSERT INTO public.mempiler_turns VALUES ('default', 'ada', 's1:1', 1);
INSERT INTO public.mempiler_turns VALUES ('default', 'ada', 's1:2', 1);
INSERT INTO public.mempiler_turns VALUES ('default', 'ada', 's2:1', 2);
INSERT INTO public.mempiler_turns VALUES ('default', 'ada', 's3:1', 3);
INSERT INTO public.mempiler_turns VALUES ('default', 'ada', 'open:1', 0);
INSERT INTO public.mempiler_turns VALUES ('default', 'ada', 'open:2', 0);
INSERT INTO public.mempiler_turns VALUES ('default', 'ada', 'bare:1', 0);
INSERT INTO public.mempiler_turns VALUES ('acme', 'alan', 't1:1', 1);
INSERT INTO public.mempiler_turns VALUES ('default', 'old', 'D1:1', 1);
INSERT INTO public.mempiler_users VALUES ('default', 'ada', 4, '2e2e6351467d4ba3ab032eebbe4e33ee', '', 1795639390.544236);
INSERT INTO public.mempiler_users VALUES ('default', 'old', 2, 'f495fea2c26640c58580f9009490f4b3', '', 1795639390.618555);
INSERT INTO public.mempiler_users VALUES ('acme', 'alan', 2, '4ba06782f9344c778503891db9f66f58', '', 0);
INSERT INTO public.mempiler_vectors VALUES ('default', 'ada', '\x006b6579', '\x0001766563746f72');
ALTER TABLE ONLY public.mempiler_amendments
    ADD CONSTRAINT mempiler_amendments_pkey PRIMARY KEY (tenant, "user", number);
ALTER TABLE ONLY public.mempiler_changes
    ADD CONSTRAINT mempiler_changes_pkey PRIMARY KEY (tenant, "user", number);
ALTER TABLE ONLY public.mempiler_forgotten
    ADD CONSTRAINT mempiler_forgotten_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.mempiler_items
    ADD CONSTRAINT mempiler_items_pkey PRIMARY KEY (tenant, "user", "position");
ALTER TABLE ONLY public.mempiler_memories
    ADD CONSTRAINT mempiler_memories_pkey PRIMARY KEY (tenant, "user");
ALTER TABLE ONLY public.mempiler_meta
    ADD CONSTRAINT mempiler_meta_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.mempiler_metadata
    ADD CONSTRAINT mempiler_metadata_pkey PRIMARY KEY (tenant, "user", "position");
ALTER TABLE ONLY public.mempiler_open_metadata
    ADD CONSTRAINT mempiler_open_metadata_pkey PRIMARY KEY (tenant, "user", session);
ALTER TABLE ONLY public.mempiler_open_turns
    ADD CONSTRAINT mempiler_open_turns_pkey PRIMARY KEY (tenant, "user", session, number);
ALTER TABLE ONLY public.mempiler_rebuilds
    ADD CONSTRAINT mempiler_rebuilds_pkey PRIMARY KEY (tenant, "user");
ALTER TABLE ONLY public.mempiler_texts
    ADD CONSTRAINT mempiler_texts_pkey PRIMARY KEY (tenant, "user");
ALTER TABLE ONLY public.mempiler_turns
    ADD CONSTRAINT mempiler_turns_pkey PRIMARY KEY (tenant, "user", turn);
ALTER TABLE ONLY public.mempiler_users
    ADD CONSTRAINT mempiler_users_pkey PRIMARY KEY (tenant, "user");
ALTER TABLE ONLY public.mempiler_vectors
    ADD CONSTRAINT mempiler_vectors_pkey PRIMARY KEY (tenant, "user", key);
CREATE UNIQUE INDEX mempiler_items_id ON public.mempiler_items USING btree (tenant, "user", id);
CREATE INDEX mempiler_items_state ON public.mempiler_items USING btree (state, tenant, "user");
