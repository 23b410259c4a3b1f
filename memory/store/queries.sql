-- Every statement of a store, by name. `queries.py` reads this file.
--
-- The tables. Rows of a user have the user's `tenant` and `user` in front.
--
--   mempiler_users       one row for each user: the position of the next item, the version of the
--                        memory, and which worker has claimed the user, and until when
--   mempiler_items       what users said, one row for each item: its JSON and its state
--   mempiler_turns       the ids of all turns, and the item to which each turn belongs
--   mempiler_open_turns  the turns of sessions that have not ended, in the order of their numbers
--   mempiler_metadata    values by which searches can choose a session, as JSON
--   mempiler_memories    which items are in the memory of a user, and which program wrote it
--   mempiler_changes     the memory itself: number 0 is a whole text, each further number is what
--                        one commit changed in it
--   mempiler_vectors     vectors of a user's texts, by a key of the text
--   mempiler_amendments  the changes that a user made to single entries of the memory
--   mempiler_answers     answers that users may rate, with the state of the memory that was asked
--   mempiler_feedback    what users said about these answers
--   mempiler_forgotten   digests of users and sessions who were forgotten, and whether their bytes
--                        are erased
--   mempiler_tenant_usage         one row for each tenant of a service with limits: its requests in
--                                 the last minute, its dollars on the last day
--   mempiler_tenant_reservations  dollars that model calls in progress may cost
--   mempiler_meta        values of the store as a whole: how often anybody was forgotten
--
-- A statement has a heading, `-- name: lock_user`, a comment and SQL. Values are bound parameters:
-- `:tenant` and `:user` say whose rows it is about, and a parameter behind IN stands for all values
-- of a list. SQLite and PostgreSQL run the same SQL, except for the few statements that are there
-- twice, as `name.sqlite` and `name.postgresql`.
--
-- `:now` is the time in seconds since 1970. On SQLite it is bound to the clock of the process. For
-- PostgreSQL the clock of the server takes its place, so that the clocks of its clients do not
-- matter.

-- Users -------------------------------------------------------------------------------------------

-- name: lock_user
-- Lock the row of a user until the transaction ends, by an update that changes nothing. Return the
-- position of the user's next item.
UPDATE mempiler_users SET next_position = next_position
WHERE tenant = :tenant AND "user" = :user
RETURNING next_position

-- name: lock_or_create_user
-- Lock the row of a user until the transaction ends; a new user gets a row. If another process
-- creates the same row at this moment, the database waits until that process has committed.
INSERT INTO mempiler_users (tenant, "user", next_position, version, worker, claimed_until)
VALUES (:tenant, :user, 1, :version, '', 0)
ON CONFLICT (tenant, "user") DO UPDATE SET next_position = mempiler_users.next_position
RETURNING next_position

-- name: raise_next_position
-- Set the position that the user's next item gets, after an item was stored. Imported items may
-- leave positions out, so this is not always one more than before.
UPDATE mempiler_users SET next_position = :next_position
WHERE tenant = :tenant AND "user" = :user AND next_position < :next_position

-- name: void_claim
-- Take a user from the worker that is writing the user's memory. The memory gets a new version, so
-- the worker's commit is refused: its claim names the old version.
UPDATE mempiler_users SET version = :version, worker = '', claimed_until = 0
WHERE tenant = :tenant AND "user" = :user

-- Items and turns ---------------------------------------------------------------------------------

-- name: find_session
-- What is stored under the id of a session: an item (a session that has ended), an open session, or
-- nothing. Columns of what does not exist are NULL.
SELECT
    (SELECT position FROM mempiler_items
        WHERE tenant = :tenant AND "user" = :user AND id = :session) AS position,
    (SELECT digest FROM mempiler_items
        WHERE tenant = :tenant AND "user" = :user AND id = :session) AS digest,
    (SELECT max(number) FROM mempiler_open_turns
        WHERE tenant = :tenant AND "user" = :user AND session = :session) AS last_open_number

-- name: insert_item
-- Store an item. There is no separate queue: an item whose state is 'queued' is in the queue.
INSERT INTO mempiler_items
    (tenant, "user", position, id, digest, json, state, attempts, error, added)
VALUES (:tenant, :user, :position, :id, :digest, :json, :state, :attempts, :error, :now)

-- name: select_items
-- All items of a user, in the order in which they came.
SELECT position, id, digest, json, state, attempts, error FROM mempiler_items
WHERE tenant = :tenant AND "user" = :user
ORDER BY position

-- name: select_items_of_turns
-- The items to which some turns belong.
SELECT position, json FROM mempiler_items
WHERE tenant = :tenant AND "user" = :user AND position IN
    (SELECT position FROM mempiler_turns
        WHERE tenant = :tenant AND "user" = :user AND turn IN :values)

-- name: delete_item
-- Delete an item. Return its position, by which its turns are found, and its state, which tells
-- whether the memory holds it.
DELETE FROM mempiler_items WHERE tenant = :tenant AND "user" = :user AND id = :id
RETURNING position, state

-- name: select_turn_ids
-- Which of some ids are taken by turns of the user.
SELECT turn FROM mempiler_turns WHERE tenant = :tenant AND "user" = :user AND turn IN :values

-- name: select_turn_ids_of_items
-- The ids of all turns of some items.
SELECT turn FROM mempiler_turns
WHERE tenant = :tenant AND "user" = :user AND position IN
    (SELECT position FROM mempiler_items
        WHERE tenant = :tenant AND "user" = :user AND id IN :values)

-- name: reserve_turn_ids.sqlite
-- Reserve the ids in a JSON list for new turns. Return the ids that were free; ids that other turns
-- have are skipped. It is one statement however many turns an item has. The position is that of
-- the item, or 0 for turns of an open session. WHERE true is there because SQLite would otherwise
-- read ON as the condition of a join.
INSERT INTO mempiler_turns (tenant, "user", turn, position)
SELECT :tenant, :user, value, :position FROM json_each(:turn_ids) WHERE true
ON CONFLICT DO NOTHING
RETURNING turn

-- name: reserve_turn_ids.postgresql
-- As for SQLite. PostgreSQL reads a JSON list by another function.
INSERT INTO mempiler_turns (tenant, "user", turn, position)
SELECT :tenant, :user, value, :position
FROM jsonb_array_elements_text(CAST(:turn_ids AS JSONB)) AS turn_ids(value)
ON CONFLICT DO NOTHING
RETURNING turn

-- name: delete_turn_ids
-- Free the ids of some turns.
DELETE FROM mempiler_turns WHERE tenant = :tenant AND "user" = :user AND turn IN :turn_ids

-- name: delete_turns_of_item
-- Free the ids of the turns of an item.
DELETE FROM mempiler_turns
WHERE tenant = :tenant AND "user" = :user AND position = :position

-- name: count_sessions_and_turns
-- How many sessions a user has, open ones included, and how many turns.
SELECT
    (SELECT count(*) FROM mempiler_items WHERE tenant = :tenant AND "user" = :user)
    + (SELECT count(DISTINCT session) FROM mempiler_open_turns
        WHERE tenant = :tenant AND "user" = :user) AS sessions,
    (SELECT count(*) FROM mempiler_turns WHERE tenant = :tenant AND "user" = :user) AS turns

-- name: select_pending_rows.sqlite
-- What users said that is not in the finalized memory, from which questions are answered. The three
-- parts are: items after its last position; earlier items that are queued again or failed; and
-- turns of open sessions, in the order of `select_open_turns`. Rows of items have '' as their
-- session. It is one statement, since it runs for every question.
-- INDEXED BY names the index by state: without it, SQLite would look for queued and failed items
-- among all items of the user.
SELECT position, json, state, attempts, error, digest, '' AS session, 0.0 AS began
FROM mempiler_items
WHERE tenant = :tenant AND "user" = :user AND position > :finalized_position
UNION ALL
SELECT position, json, state, attempts, error, digest, '', 0.0
FROM mempiler_items INDEXED BY mempiler_items_state
WHERE tenant = :tenant AND "user" = :user
    AND state IN ('queued', 'failed') AND position <= :finalized_position
UNION ALL
SELECT number, json, '', 0, '', '', session,
    first_value(added) OVER (PARTITION BY session ORDER BY number)
FROM mempiler_open_turns
WHERE tenant = :tenant AND "user" = :user
ORDER BY began, position

-- name: select_pending_rows.postgresql
-- As for SQLite. PostgreSQL finds the index itself.
SELECT position, json, state, attempts, error, digest, '' AS session, 0.0 AS began
FROM mempiler_items
WHERE tenant = :tenant AND "user" = :user AND position > :finalized_position
UNION ALL
SELECT position, json, state, attempts, error, digest, '', 0.0
FROM mempiler_items
WHERE tenant = :tenant AND "user" = :user
    AND state IN ('queued', 'failed') AND position <= :finalized_position
UNION ALL
SELECT number, json, '', 0, '', '', session,
    first_value(added) OVER (PARTITION BY session ORDER BY number)
FROM mempiler_open_turns
WHERE tenant = :tenant AND "user" = :user
ORDER BY began, position

-- name: set_item_aside
-- Give up an item whose row is damaged, so that workers write the other items of its user. Nothing
-- happens if the row is another one by now: its state may have changed; or the user was forgotten,
-- and another item has the position.
UPDATE mempiler_items SET state = 'failed', error = 'the row is damaged'
WHERE tenant = :tenant AND "user" = :user AND position = :position AND state = :state
    AND digest = :digest

-- Open sessions -----------------------------------------------------------------------------------

-- name: select_open_turns
-- All turns of open sessions. The session that began first comes first. The turns of a session are
-- sorted by number and not by time, because the clock may have been set back between two of them.
SELECT session, json FROM mempiler_open_turns
WHERE tenant = :tenant AND "user" = :user
ORDER BY first_value(added) OVER (PARTITION BY session ORDER BY number), number

-- name: select_turns_of_open_session
-- The turns of one open session.
SELECT session, json FROM mempiler_open_turns
WHERE tenant = :tenant AND "user" = :user AND session = :session
ORDER BY number

-- name: insert_open_turn
-- Store one turn of an open session.
INSERT INTO mempiler_open_turns (tenant, "user", session, number, json, added)
VALUES (:tenant, :user, :session, :number, :json, :now)

-- name: delete_open_turns_of_session
-- Delete all turns of one open session.
DELETE FROM mempiler_open_turns
WHERE tenant = :tenant AND "user" = :user AND session = :session

-- name: select_idle_sessions
-- Open sessions whose last turn is older than some seconds. Also those whose last turn is dated too
-- far in the future (`max_lead`): that was a wrong clock, and they would not end until then.
SELECT tenant, "user", session FROM mempiler_open_turns
GROUP BY tenant, "user", session
HAVING max(added) < :now - :seconds OR max(added) > :now + :max_lead
ORDER BY max(added)

-- Metadata of sessions ----------------------------------------------------------------------------

-- name: select_metadata
-- The metadata of all sessions of a user.
SELECT session, json FROM mempiler_metadata WHERE tenant = :tenant AND "user" = :user

-- name: select_metadata_of_sessions
-- The metadata of some sessions.
SELECT session, json FROM mempiler_metadata
WHERE tenant = :tenant AND "user" = :user AND session IN :values

-- name: select_sessions_of_turns
-- The sessions to which some turns belong, with their metadata; NULL for a session without
-- metadata.
SELECT t.turn, i.id AS session, m.json
FROM mempiler_turns t
JOIN mempiler_items i
    ON i.tenant = t.tenant AND i."user" = t."user" AND i.position = t.position
LEFT JOIN mempiler_metadata m
    ON m.tenant = t.tenant AND m."user" = t."user" AND m.session = i.id
WHERE t.tenant = :tenant AND t."user" = :user AND t.turn IN :values

-- name: upsert_metadata
-- Store the metadata of a session; they replace its earlier metadata.
INSERT INTO mempiler_metadata (tenant, "user", session, json)
VALUES (:tenant, :user, :session, :json)
ON CONFLICT (tenant, "user", session) DO UPDATE SET json = excluded.json

-- name: delete_metadata_of_session
-- Delete the metadata of one session.
DELETE FROM mempiler_metadata
WHERE tenant = :tenant AND "user" = :user AND session = :session

-- The queue ---------------------------------------------------------------------------------------

-- name: select_users_to_finalize
-- Users whose memory has items that its finalized form lacks, so that a worker has to finalize it.
-- The index `mempiler_memories_unfinalized` holds exactly these rows.
SELECT tenant, "user" FROM mempiler_memories WHERE finalized_position < position

-- name: select_tenants_with_state
-- Tenants that have items in a state. The recursion goes from each tenant to the next one by a
-- single step in the index on states. DISTINCT would read all items of every tenant.
WITH RECURSIVE tenants(name) AS (
    SELECT min(tenant) FROM mempiler_items WHERE state = :state
    UNION ALL
    SELECT (SELECT min(tenant) FROM mempiler_items WHERE state = :state AND tenant > name)
    FROM tenants WHERE name IS NOT NULL
)
SELECT name FROM tenants WHERE name IS NOT NULL

-- name: select_users_with_state
-- The next users of a tenant, after `last_user`, who have items in a state. The recursion works as
-- in `select_tenants_with_state`.
WITH RECURSIVE users(name) AS (
    SELECT min("user") FROM mempiler_items
    WHERE state = :state AND tenant = :tenant AND "user" > :last_user
    UNION ALL
    SELECT (SELECT min("user") FROM mempiler_items
        WHERE state = :state AND tenant = :tenant AND "user" > name)
    FROM users WHERE name IS NOT NULL
)
SELECT name FROM users WHERE name IS NOT NULL LIMIT :limit

-- name: count_claimed_users
-- How many users of each tenant workers have claimed now. Paused users do not count: they have no
-- worker. A claim that ends later than the longest lease was dated by a wrong clock, and is void.
SELECT tenant, count(*) AS users FROM mempiler_users
WHERE worker <> '' AND claimed_until > :now AND claimed_until <= :now + :max_lease
GROUP BY tenant

-- name: select_claimable_users
-- Which of some users a worker may claim. The three conditions are: no other worker has a valid
-- claim of the user; there are items in the wanted states, or a memory to finalize; and the memory,
-- if there is one, was written by the same program and embedder. A user without a worker whose
-- `claimed_until` is in the future is paused. Those whose last claim ended first come first.
SELECT "user", claimed_until FROM mempiler_users u
WHERE tenant = :tenant AND "user" IN :users
    AND (worker = :worker
        OR claimed_until <= :now
        OR claimed_until > :now + :max_lease
        OR (:includes_paused AND worker = ''))
    AND (EXISTS (SELECT 1 FROM mempiler_items
            WHERE tenant = u.tenant AND "user" = u."user" AND state IN :states)
        OR EXISTS (SELECT 1 FROM mempiler_memories
            WHERE tenant = u.tenant AND "user" = u."user" AND finalized_position < position))
    AND NOT EXISTS (SELECT 1 FROM mempiler_memories
        WHERE tenant = u.tenant AND "user" = u."user"
            AND NOT (writer = :writer AND embedder = :embedder AND schema = :schema))
ORDER BY claimed_until
LIMIT :limit

-- name: claim_user.sqlite
-- Reserve a user for a worker for some seconds (the lease), if no other worker has a valid claim of
-- the user. Return the version of the memory, which the worker's commit must name.
UPDATE mempiler_users SET worker = :worker, claimed_until = :now + :lease
WHERE tenant = :tenant AND "user" = :user
    AND (worker = :worker
        OR claimed_until <= :now
        OR claimed_until > :now + :max_lease
        OR (:includes_paused AND worker = ''))
RETURNING version

-- name: claim_user.postgresql
-- As for SQLite. If another worker is claiming the same user at this moment, its lock is not waited
-- for: the row is skipped, and nothing is returned.
UPDATE mempiler_users SET worker = :worker, claimed_until = :now + :lease
WHERE tenant = :tenant AND "user" = :user AND "user" IN
    (SELECT "user" FROM mempiler_users
        WHERE tenant = :tenant AND "user" = :user
            AND (worker = :worker
                OR claimed_until <= :now
                OR claimed_until > :now + :max_lease
                OR (:includes_paused AND worker = ''))
        FOR UPDATE SKIP LOCKED)
RETURNING version

-- name: advance_version_and_renew_claim
-- Give a memory its next version, if it still has the version that the worker began with, and renew
-- the lease. If another worker has claimed the user meanwhile, that worker's name stays in the row:
-- it gives the user back when its own commit is refused.
UPDATE mempiler_users SET version = :next_version, claimed_until = :now + :lease
WHERE tenant = :tenant AND "user" = :user AND version = :old_version

-- name: advance_version_and_release
-- Give a memory its next version, if it still has the version that the worker began with. Also give
-- the user back, unless another worker has claimed the user meanwhile.
UPDATE mempiler_users SET version = :next_version,
    claimed_until = CASE worker WHEN :worker THEN :now ELSE claimed_until END,
    worker = CASE worker WHEN :worker THEN '' ELSE worker END
WHERE tenant = :tenant AND "user" = :user AND version = :old_version

-- name: mark_remembered
-- Mark exactly the items that a worker wrote into the memory. An item that another worker has given
-- up meanwhile ('failed') is marked too, because it is in the memory now.
UPDATE mempiler_items SET state = 'remembered', error = :note
WHERE tenant = :tenant AND "user" = :user AND position IN :item_positions
    AND state IN ('queued', 'failed')

-- name: mark_no_longer_partial.sqlite
-- Mark all partial items as remembered; afterwards `mark_partial` marks those that are still
-- partial. Without INDEXED BY, SQLite would look at all items of the user.
UPDATE mempiler_items SET state = 'remembered'
WHERE tenant = :tenant AND "user" = :user AND position IN
    (SELECT position FROM mempiler_items INDEXED BY mempiler_items_state
        WHERE tenant = :tenant AND "user" = :user AND state = 'partial')

-- name: mark_no_longer_partial.postgresql
-- As for SQLite; PostgreSQL finds the index itself.
UPDATE mempiler_items SET state = 'remembered'
WHERE tenant = :tenant AND "user" = :user AND state = 'partial'

-- name: mark_partial
-- Mark items of which some turns could not be written into the memory.
UPDATE mempiler_items SET state = 'partial'
WHERE tenant = :tenant AND "user" = :user AND state = 'remembered' AND id IN :item_ids

-- name: record_failure
-- Count a failed attempt to write an item, which stays queued or becomes failed. Nothing happens if
-- the memory has another version than the worker began with. The version stays, because the memory
-- does not change. So a slower worker may still write and commit the item; then `mark_remembered`
-- marks it although it is failed.
UPDATE mempiler_items SET state = :state, attempts = attempts + 1, error = :error
WHERE tenant = :tenant AND "user" = :user AND position = :position AND state = 'queued'
    AND EXISTS (SELECT 1 FROM mempiler_users
        WHERE tenant = :tenant AND "user" = :user AND version = :version)

-- name: release_user
-- Give a user back, so that other workers may claim the user; only if this worker still has it.
UPDATE mempiler_users SET worker = '', claimed_until = :now
WHERE tenant = :tenant AND "user" = :user AND worker = :worker

-- name: pause_user
-- Keep workers from claiming a user for some seconds. Nothing happens if a worker has the user.
UPDATE mempiler_users SET claimed_until = :now + :seconds
WHERE tenant = :tenant AND "user" = :user AND worker = ''

-- name: requeue_failed
-- Queue the items of a user that were given up.
UPDATE mempiler_items SET state = 'queued', attempts = 0
WHERE tenant = :tenant AND "user" = :user AND state = 'failed'

-- name: queue_all_items
-- Queue all items of a user again, for a memory that is written anew.
UPDATE mempiler_items SET state = 'queued', attempts = 0, error = ''
WHERE tenant = :tenant AND "user" = :user

-- Memories ----------------------------------------------------------------------------------------

-- name: select_memory_head
-- What is known of a user's memory without its text. This is always one row, with NULL for what is
-- not stored, because the join begins with a made-up row (`one_row`).
SELECT
    memories.base,
    memories.position,
    memories.finalized_position,
    memories.speakers,
    memories.writer,
    memories.program,
    memories.embedder,
    memories.schema,
    (
        SELECT version FROM mempiler_users WHERE tenant = :tenant AND "user" = :user
    ) AS version,
    (SELECT value FROM mempiler_meta WHERE name = 'forgets') AS forget_count,
    (
        SELECT max(number) FROM mempiler_amendments WHERE tenant = :tenant AND "user" = :user
    ) AS last_amendment
FROM (SELECT 1 AS always) one_row
LEFT JOIN mempiler_memories memories ON memories.tenant = :tenant AND memories."user" = :user

-- name: select_changes
-- The changes of a memory after a given number, oldest first. Number 0 is the whole text to which
-- the changes apply, so -1 selects the text as well.
SELECT memory, finalized FROM mempiler_changes
WHERE tenant = :tenant AND "user" = :user AND number > :after_number
ORDER BY number

-- name: upsert_memory
-- Store which program wrote a memory, and up to which position it holds items. A row that the user
-- has already is replaced.
INSERT INTO mempiler_memories
    (tenant, "user", base, position, finalized_position, speakers,
    writer, program, embedder, schema, updated)
VALUES
    (:tenant, :user, :base, :position, :finalized_position, :speakers,
    :writer, :program, :embedder, :schema, :now)
ON CONFLICT (tenant, "user") DO UPDATE SET
    base = excluded.base,
    position = excluded.position,
    finalized_position = excluded.finalized_position,
    speakers = excluded.speakers,
    writer = excluded.writer,
    program = excluded.program,
    embedder = excluded.embedder,
    schema = excluded.schema,
    updated = excluded.updated

-- name: insert_change
-- Store what one commit changed in a memory. Number 0 is the whole text instead of a change.
INSERT INTO mempiler_changes (tenant, "user", number, memory, finalized)
VALUES (:tenant, :user, :number, :memory, :finalized)

-- Vectors -----------------------------------------------------------------------------------------

-- name: select_vectors
-- The vectors under some keys; a key without a stored vector has no row.
SELECT key, vector FROM mempiler_vectors
WHERE tenant = :tenant AND "user" = :user AND key IN :values

-- name: upsert_vector
-- Store a vector under a key; it replaces a vector that has the same key.
INSERT INTO mempiler_vectors (tenant, "user", key, vector)
VALUES (:tenant, :user, :key, :vector)
ON CONFLICT (tenant, "user", key) DO UPDATE SET vector = excluded.vector

-- Amendments --------------------------------------------------------------------------------------

-- name: select_amendments
-- All amendments of a user, oldest first.
SELECT number, action, entry, kind, old_text, new_text, sources, at, by, undoes
FROM mempiler_amendments
WHERE tenant = :tenant AND "user" = :user
ORDER BY number

-- name: select_last_amendment
-- The number of a user's last amendment; NULL if there is none.
SELECT max(number) FROM mempiler_amendments WHERE tenant = :tenant AND "user" = :user

-- name: insert_amendment
-- Store one amendment.
INSERT INTO mempiler_amendments
    (tenant, "user", number, action, entry, kind, old_text, new_text, sources, at, by, undoes)
VALUES
    (:tenant, :user, :number, :action, :entry, :kind, :old_text, :new_text, :sources, :at, :by,
    :undoes)

-- name: delete_amendment
-- Delete one amendment, e.g. because a turn that its entry came from was forgotten.
DELETE FROM mempiler_amendments
WHERE tenant = :tenant AND "user" = :user AND number = :number

-- Answers and feedback ----------------------------------------------------------------------------

-- name: select_answers
-- All kept answers of a user, oldest first.
SELECT number, id, question, answer, memory_version, position, open_turns, entries, sources,
    rests_on_all, at
FROM mempiler_answers
WHERE tenant = :tenant AND "user" = :user
ORDER BY number

-- name: select_answer
-- One kept answer, by its id.
SELECT number, id, question, answer, memory_version, position, open_turns, entries, sources,
    rests_on_all, at
FROM mempiler_answers
WHERE tenant = :tenant AND "user" = :user AND id = :id

-- name: select_last_answer_number
-- The number of a user's last answer; NULL if there is none.
SELECT max(number) FROM mempiler_answers WHERE tenant = :tenant AND "user" = :user

-- name: insert_answer
-- Store one answer.
INSERT INTO mempiler_answers
    (tenant, "user", number, id, question, answer, memory_version, position, open_turns, entries,
    sources, rests_on_all, at)
VALUES
    (:tenant, :user, :number, :id, :question, :answer, :memory_version, :position, :open_turns,
    :entries, :sources, :rests_on_all, :at)

-- name: delete_answer
-- Delete one answer; its feedback is deleted by `delete_feedback_without_answer`.
DELETE FROM mempiler_answers WHERE tenant = :tenant AND "user" = :user AND id = :id

-- name: delete_old_answers
-- Delete the answers of a user up to a number.
DELETE FROM mempiler_answers
WHERE tenant = :tenant AND "user" = :user AND number <= :last_number

-- name: select_feedback
-- What a user said about answers.
SELECT answer, is_right, correction, useful_entries, at FROM mempiler_feedback
WHERE tenant = :tenant AND "user" = :user
ORDER BY at, answer

-- name: upsert_feedback
-- Store what a user said about an answer; it replaces what the user said about it before.
INSERT INTO mempiler_feedback
    (tenant, "user", answer, is_right, correction, useful_entries, at)
VALUES (:tenant, :user, :answer, :is_right, :correction, :useful_entries, :at)
ON CONFLICT (tenant, "user", answer) DO UPDATE SET
    is_right = excluded.is_right,
    correction = excluded.correction,
    useful_entries = excluded.useful_entries,
    at = excluded.at

-- name: delete_feedback_without_answer
-- Delete the feedback of a user on answers that are not kept any more.
DELETE FROM mempiler_feedback
WHERE tenant = :tenant AND "user" = :user AND answer NOT IN
    (SELECT id FROM mempiler_answers WHERE tenant = :tenant AND "user" = :user)

-- name: select_owners_with_feedback
-- The users who rated an answer.
SELECT DISTINCT tenant, "user" FROM mempiler_feedback ORDER BY tenant, "user"

-- Who was forgotten -------------------------------------------------------------------------------

-- name: select_forget_count
-- How often anybody was forgotten in this store; no row if nobody ever was.
SELECT value FROM mempiler_meta WHERE name = 'forgets'

-- name: increase_forget_count
-- Count one more forgotten user or session, and return the new count. The column holds texts, so
-- the count is converted to a number and back.
INSERT INTO mempiler_meta (name, value) VALUES ('forgets', '1')
ON CONFLICT (name) DO UPDATE
    SET value = CAST(CAST(mempiler_meta.value AS INTEGER) + 1 AS VARCHAR)
RETURNING value

-- name: log_forgotten
-- Log that a user or session was forgotten, and under which number. The name is a digest. If it was
-- forgotten before, the entry is replaced.
INSERT INTO mempiler_forgotten (name, number, at, erased) VALUES (:name, :number, :now, :erased)
ON CONFLICT (name) DO UPDATE
    SET number = excluded.number, at = excluded.at, erased = excluded.erased

-- name: delete_old_log_entries
-- Delete old entries of the log: those that no running write can have begun before, and whose bytes
-- are erased.
DELETE FROM mempiler_forgotten WHERE at < :now - :kept_seconds AND erased = 1

-- name: select_forgotten_since
-- Which of some users or sessions were forgotten after a write began. `forget_count` is the count
-- that the writer read when it began; later entries have higher numbers.
SELECT number FROM mempiler_forgotten WHERE name IN :names AND number > :forget_count

-- name: select_unerased_log_entry
-- The log entry of a user or session, if its bytes may still be in the database file.
SELECT name FROM mempiler_forgotten WHERE name = :name AND erased = 0

-- name: select_last_unerased_number
-- The number of the last forgotten user or session whose bytes may still be in the database file;
-- NULL if all are erased.
SELECT max(number) FROM mempiler_forgotten WHERE erased = 0

-- name: mark_erased
-- Note that the bytes of what was forgotten up to a number are erased. What was forgotten while
-- they were being erased has a higher number.
UPDATE mempiler_forgotten SET erased = 1 WHERE number <= :last_number AND erased = 0

-- Deleting everything of a user -------------------------------------------------------------------

-- name: delete_items
-- Delete all items of a user.
DELETE FROM mempiler_items WHERE tenant = :tenant AND "user" = :user

-- name: delete_turns
-- Free the ids of all turns of a user.
DELETE FROM mempiler_turns WHERE tenant = :tenant AND "user" = :user

-- name: delete_open_turns
-- Delete the turns of all open sessions of a user.
DELETE FROM mempiler_open_turns WHERE tenant = :tenant AND "user" = :user

-- name: delete_metadata
-- Delete the metadata of all sessions of a user.
DELETE FROM mempiler_metadata WHERE tenant = :tenant AND "user" = :user

-- name: delete_memory
-- Delete the row about the memory of a user; its text is deleted by `delete_changes`.
DELETE FROM mempiler_memories WHERE tenant = :tenant AND "user" = :user

-- name: delete_changes
-- Delete the text of the memory of a user, and its changes.
DELETE FROM mempiler_changes WHERE tenant = :tenant AND "user" = :user

-- name: delete_vectors
-- Delete all vectors of a user's texts.
DELETE FROM mempiler_vectors WHERE tenant = :tenant AND "user" = :user

-- name: delete_amendments
-- Delete all amendments of a user.
DELETE FROM mempiler_amendments WHERE tenant = :tenant AND "user" = :user

-- name: delete_answers
-- Delete all kept answers of a user.
DELETE FROM mempiler_answers WHERE tenant = :tenant AND "user" = :user

-- name: delete_feedback
-- Delete all feedback of a user.
DELETE FROM mempiler_feedback WHERE tenant = :tenant AND "user" = :user

-- name: delete_user
-- Delete the row of a user. A worker that is writing the memory cannot commit any more: the version
-- that its claim names is gone.
DELETE FROM mempiler_users WHERE tenant = :tenant AND "user" = :user

-- Listing and counting users ----------------------------------------------------------------------

-- name: select_owners
-- All users of all tenants.
SELECT tenant, "user" FROM mempiler_users ORDER BY tenant, "user"

-- name: select_owners_of_tenant
-- All users of one tenant.
SELECT tenant, "user" FROM mempiler_users WHERE tenant = :tenant ORDER BY "user"

-- name: select_owners_of_name
-- All users of one name, of whatever tenant.
SELECT tenant, "user" FROM mempiler_users WHERE "user" = :user ORDER BY tenant

-- name: select_owner
-- One user, if there is such a user.
SELECT tenant, "user" FROM mempiler_users WHERE tenant = :tenant AND "user" = :user

-- name: select_page_of_owners
-- The next users of a tenant whose names come after another name.
SELECT tenant, "user" FROM mempiler_users
WHERE tenant = :tenant AND "user" > :after
ORDER BY "user" LIMIT :limit

-- name: select_statuses
-- Of some users of one tenant: the counts of their items and open turns, and which program wrote
-- the memory. Items and open turns are counted in subqueries before the join: a join of both tables
-- would count each item once for every open turn. A count is NULL for a user without such rows.
SELECT
    users.tenant,
    users."user",
    items.sessions,
    items.queued,
    items.partial,
    items.failed,
    open_turns.open_turns,
    memories.position,
    memories.writer,
    memories.program,
    memories.embedder,
    memories.schema,
    memories.updated
FROM mempiler_users users
LEFT JOIN (
    SELECT
        "user",
        count(*) AS sessions,
        sum(CASE state WHEN 'queued' THEN 1 ELSE 0 END) AS queued,
        sum(CASE state WHEN 'partial' THEN 1 ELSE 0 END) AS partial,
        sum(CASE state WHEN 'failed' THEN 1 ELSE 0 END) AS failed
    FROM mempiler_items WHERE tenant = :tenant AND "user" IN :users GROUP BY "user"
) items ON items."user" = users."user"
LEFT JOIN (
    SELECT "user", count(*) AS open_turns
    FROM mempiler_open_turns WHERE tenant = :tenant AND "user" IN :users GROUP BY "user"
) open_turns ON open_turns."user" = users."user"
LEFT JOIN mempiler_memories memories
    ON memories.tenant = users.tenant AND memories."user" = users."user"
WHERE users.tenant = :tenant AND users."user" IN :users
ORDER BY users."user"

-- name: count_users
-- How many users there are, of all tenants together.
SELECT count(*) FROM mempiler_users

-- name: count_items_by_state
-- How many items of all users are in each state; states without items have no row.
SELECT state, count(*) AS items FROM mempiler_items GROUP BY state

-- name: count_failed_items
-- How many items of all users are given up. The index by state finds them without the other items.
SELECT count(*) FROM mempiler_items WHERE state = 'failed'

-- What tenants use ---------------------------------------------------------------------------------
--
-- Minutes and days are counted since 1970. FLOOR, because PostgreSQL rounds where it makes a whole
-- number, and minutes would begin half a second early.

-- name: count_tenant_request
-- Count a request of a tenant. Return how many there were in this minute, and how many seconds of it
-- are left. The first request of a minute begins at 1.
INSERT INTO mempiler_tenant_usage AS known (tenant, minute, requests, day, usd)
VALUES (:tenant, CAST(FLOOR(:now) AS BIGINT) / 60, 1, 0, 0)
ON CONFLICT (tenant) DO UPDATE SET
    requests = CASE WHEN known.minute = excluded.minute THEN known.requests + 1 ELSE 1 END,
    minute = excluded.minute
RETURNING requests, (minute + 1) * 60.0 - :now AS seconds_left

-- name: lock_tenant_day
-- Lock the row of a tenant until the transaction ends. Return the day, what the tenant has spent on
-- it, and how many seconds of it are left. A new day begins at 0 dollars.
INSERT INTO mempiler_tenant_usage AS known (tenant, minute, requests, day, usd)
VALUES (:tenant, 0, 0, CAST(FLOOR(:now) AS BIGINT) / 86400, 0)
ON CONFLICT (tenant) DO UPDATE SET
    usd = CASE WHEN known.day = excluded.day THEN known.usd ELSE 0 END,
    day = excluded.day
RETURNING day, usd, (day + 1) * 86400.0 - :now AS seconds_left

-- name: add_tenant_cost
-- Add what a tenant has spent on a day, if that day is still the last one.
UPDATE mempiler_tenant_usage SET usd = usd + :usd WHERE tenant = :tenant AND day = :day

-- name: select_tenant_cost
-- What a tenant has spent today.
SELECT usd FROM mempiler_tenant_usage
WHERE tenant = :tenant AND day = CAST(FLOOR(:now) AS BIGINT) / 86400

-- name: insert_reservation
-- Reserve dollars for a call that begins.
INSERT INTO mempiler_tenant_reservations (id, tenant, day, usd, expires)
VALUES (:id, :tenant, :day, :usd, :now + :lifetime)

-- name: sum_tenant_reservations
-- What the calls of a tenant that are in progress may cost on a day.
SELECT COALESCE(sum(usd), 0) FROM mempiler_tenant_reservations
WHERE tenant = :tenant AND day = :day

-- name: delete_reservation
-- Delete the reservation of a call that has ended.
DELETE FROM mempiler_tenant_reservations WHERE id = :id

-- name: delete_expired_reservations
-- Delete what calls of a tenant had reserved whose processes have died.
DELETE FROM mempiler_tenant_reservations WHERE tenant = :tenant AND expires <= :now

-- The store ---------------------------------------------------------------------------------------

-- name: write_check
-- Write a row without a meaning, to find out whether the store can be written.
INSERT INTO mempiler_meta (name, value) VALUES ('checked', :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
