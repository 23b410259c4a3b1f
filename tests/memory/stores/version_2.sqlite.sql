BEGIN TRANSACTION;
CREATE TABLE mempiler_amendments (
	tenant VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	number INTEGER NOT NULL, 
	what VARCHAR NOT NULL, 
	entry VARCHAR NOT NULL, 
	kind VARCHAR NOT NULL, 
	text TEXT NOT NULL, 
	sources TEXT NOT NULL, 
	at FLOAT NOT NULL, 
	"by" VARCHAR NOT NULL, 
	undoes INTEGER NOT NULL, 
	new TEXT, 
	PRIMARY KEY (tenant, user, number)
);
INSERT INTO "mempiler_amendments" VALUES('default','ada',1,'update','s1:1','turn','Ada: I moved to Lisbon.','["s1:1"]',1735787045.0,'Ada',0,'Ada: I moved to Porto.');
CREATE TABLE mempiler_changes (
	tenant VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	number INTEGER NOT NULL, 
	memory TEXT NOT NULL, 
	settled TEXT, 
	PRIMARY KEY (tenant, user, number)
);
INSERT INTO "mempiler_changes" VALUES('default','ada',1,'{"words": {"items": [[1, 0, ["b"]]]}}','{"words": {"value": ["answered"]}}');
CREATE TABLE mempiler_forgotten (
	name VARCHAR NOT NULL, 
	number INTEGER NOT NULL, 
	at FLOAT NOT NULL, 
	erased INTEGER NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "mempiler_forgotten" VALUES('1ce96032be88a7d1fe7790c622c71a3ff1a6049bfe7d3bcbf524e9ad3fe6e7da',1,1.79563937600946402555e+09,1);
CREATE TABLE mempiler_items (
	tenant VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	position INTEGER NOT NULL, 
	id VARCHAR NOT NULL, 
	digest VARCHAR NOT NULL, 
	json TEXT NOT NULL, 
	state VARCHAR NOT NULL, 
	attempts INTEGER NOT NULL, 
	error TEXT NOT NULL, 
	added FLOAT NOT NULL, 
	PRIMARY KEY (tenant, user, position)
);
INSERT INTO "mempiler_items" VALUES('default','ada',1,'s1','05c7c6a1e3a5463382add84d94e1ae216b67e6de7aff0f968427604d0e60561f','{"id":"s1","time":null,"turns":[{"id":"s1:1","speaker":"Ada","text":"I moved to Lisbon.","caption":null,"time":null},{"id":"s1:2","speaker":"Ada","text":"I have a dog.","caption":null,"time":null}],"kind":"session"}','remembered',0,'',1.79563937585432219505e+09);
INSERT INTO "mempiler_items" VALUES('default','ada',2,'s2','9851520e96bd6d5046793fccbc80d9189561502f32c706fdad0e7c7aa0684dd2','{"id":"s2","time":null,"turns":[{"id":"s2:1","speaker":"Ada","text":"The dog is called Rex.","caption":null,"time":null}],"kind":"session"}','remembered',0,'note of s2',1.79563937586394953725e+09);
INSERT INTO "mempiler_items" VALUES('default','ada',3,'s3','6722bc33367bbbef43ddc52decf1b69e2b8fddc6a19a5591875680193532c81e','{"id":"s3","time":null,"turns":[{"id":"s3:1","speaker":"Ada","text":"It waits.","caption":null,"time":null}],"kind":"session"}','queued',0,'',1.79563937587039446834e+09);
INSERT INTO "mempiler_items" VALUES('acme','alan',1,'t1','0b6bc13effeccd76879a9499d5385d3e4034ce4212858c257e4c225e9ba4e3b5','{"id":"t1","time":null,"turns":[{"id":"t1:1","speaker":"Ada","text":"Not to be read.","caption":null,"time":null}],"kind":"session"}','queued',0,'',1.79563937593467187877e+09);
INSERT INTO "mempiler_items" VALUES('default','old',1,'D1','4e9ddc634dc0ce411f6fdf035e89822033d0f8c8edc1f8a062b11129078db539','{"id":"D1","time":null,"turns":[{"id":"D1:1","speaker":"Ada","text":"Written before there were changes.","caption":null,"time":null}],"kind":"session"}','remembered',0,'',1.79563937595907568934e+09);
CREATE TABLE mempiler_memories (
	tenant VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	json TEXT NOT NULL, 
	position INTEGER NOT NULL, 
	settled TEXT, 
	settled_position INTEGER NOT NULL, 
	speakers TEXT NOT NULL, 
	writer VARCHAR NOT NULL, 
	program VARCHAR NOT NULL, 
	embedder VARCHAR NOT NULL, 
	schema INTEGER NOT NULL, 
	updated FLOAT NOT NULL, 
	PRIMARY KEY (tenant, user)
);
INSERT INTO "mempiler_memories" VALUES('default','ada','',2,NULL,2,'["Ada", "Bo"]','w','p','e',2,1.79563937590203452111e+09);
INSERT INTO "mempiler_memories" VALUES('default','old','{"words": ["old"]}',1,NULL,1,'["Ada"]','w','p','e',2,1.79563937597260141372e+09);
CREATE TABLE mempiler_meta (
	name VARCHAR NOT NULL, 
	value VARCHAR, 
	PRIMARY KEY (name)
);
INSERT INTO "mempiler_meta" VALUES('schema','2');
INSERT INTO "mempiler_meta" VALUES('forgets','1');
CREATE TABLE mempiler_metadata (
	tenant VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	position INTEGER NOT NULL, 
	json TEXT NOT NULL, 
	PRIMARY KEY (tenant, user, position)
);
INSERT INTO "mempiler_metadata" VALUES('default','ada',1,'{"channel": "phone", "year": 2025}');
INSERT INTO "mempiler_metadata" VALUES('default','ada',3,'{"channel": "mail"}');
CREATE TABLE mempiler_open_metadata (
	tenant VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	session VARCHAR NOT NULL, 
	json TEXT NOT NULL, 
	PRIMARY KEY (tenant, user, session)
);
INSERT INTO "mempiler_open_metadata" VALUES('default','ada','open','{"n": 2}');
CREATE TABLE mempiler_open_turns (
	tenant VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	session VARCHAR NOT NULL, 
	number INTEGER NOT NULL, 
	json TEXT NOT NULL, 
	added FLOAT NOT NULL, 
	PRIMARY KEY (tenant, user, session, number)
);
INSERT INTO "mempiler_open_turns" VALUES('default','ada','open',1,'{"id":"open:1","speaker":"Ada","text":"It goes on.","caption":null,"time":null}',1.79563937591042971616e+09);
INSERT INTO "mempiler_open_turns" VALUES('default','ada','open',2,'{"id":"open:2","speaker":"Bo","text":"It does.","caption":null,"time":null}',1.79563937591840171812e+09);
INSERT INTO "mempiler_open_turns" VALUES('default','ada','bare',1,'{"id":"bare:1","speaker":"Ada","text":"Nothing was said of this one.","caption":null,"time":null}',1.79563937592221307751e+09);
CREATE TABLE mempiler_rebuilds (
	tenant VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	writer VARCHAR NOT NULL, 
	begun INTEGER NOT NULL, 
	since FLOAT NOT NULL, 
	PRIMARY KEY (tenant, user)
);
INSERT INTO "mempiler_rebuilds" VALUES('default','ada','w2',0,1.79563937597591710085e+09);
INSERT INTO "mempiler_rebuilds" VALUES('acme','alan','w2',1,1.7956393759821550846e+09);
CREATE TABLE mempiler_texts (
	tenant VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	base VARCHAR NOT NULL, 
	memory TEXT NOT NULL, 
	settled TEXT, 
	PRIMARY KEY (tenant, user)
);
INSERT INTO "mempiler_texts" VALUES('default','ada','base-1','{"words": ["a"]}','{"words": []}');
CREATE TABLE mempiler_turns (
	tenant VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	turn VARCHAR NOT NULL, 
	position INTEGER NOT NULL, 
	PRIMARY KEY (tenant, user, turn)
);
INSERT INTO "mempiler_turns" VALUES('default','ada','s1:1',1);
INSERT INTO "mempiler_turns" VALUES('default','ada','s1:2',1);
INSERT INTO "mempiler_turns" VALUES('default','ada','s2:1',2);
INSERT INTO "mempiler_turns" VALUES('default','ada','s3:1',3);
INSERT INTO "mempiler_turns" VALUES('default','ada','open:1',0);
INSERT INTO "mempiler_turns" VALUES('default','ada','open:2',0);
INSERT INTO "mempiler_turns" VALUES('default','ada','bare:1',0);
INSERT INTO "mempiler_turns" VALUES('acme','alan','t1:1',1);
INSERT INTO "mempiler_turns" VALUES('default','old','D1:1',1);
CREATE TABLE mempiler_users (
	tenant VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	next_position INTEGER NOT NULL, 
	version VARCHAR NOT NULL, 
	worker VARCHAR NOT NULL, 
	claimed_until FLOAT NOT NULL, 
	PRIMARY KEY (tenant, user)
);
INSERT INTO "mempiler_users" VALUES('default','ada',4,'cd2ca0b7290c4cff93dd2971a590203c','',1.79563937590731883047e+09);
INSERT INTO "mempiler_users" VALUES('acme','alan',2,'bb38956b3a14489b8cc77c7c85ca2d78','',0.0);
INSERT INTO "mempiler_users" VALUES('default','old',2,'f88c5688f4b54a4a9e9d95ce8310025d','',1.79563937597415304182e+09);
CREATE TABLE mempiler_vectors (
	tenant VARCHAR NOT NULL, 
	user VARCHAR NOT NULL, 
	"key" BLOB NOT NULL, 
	vector BLOB NOT NULL, 
	PRIMARY KEY (tenant, user, "key")
);
INSERT INTO "mempiler_vectors" VALUES('default','ada',X'006B6579',X'0001766563746F72');
CREATE UNIQUE INDEX mempiler_items_id ON mempiler_items (tenant, user, id);
CREATE INDEX mempiler_items_state ON mempiler_items (state, tenant, user);
COMMIT;
