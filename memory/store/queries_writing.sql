-- Users ---------------------------------------------------------------------------------------

-- name: lock_user
-- Locks the row of a user until the transaction ends: an update that changes nothing.
UPDATE mempiler_users SET next_position = next_position
WHERE tenant = :tenant AND "user" = :user
RETURNING next_position

-- name: lock_or_create_user
-- Locks the row of a user, and makes it for a new one. Whoever makes the same row at the same time is
-- waited for.
INSERT INTO mempiler_users (tenant, "user", next_position, version, worker, claimed_until)
VALUES (:tenant, :user, 1, :version, '', 0)
ON CONFLICT (tenant, "user") DO UPDATE SET next_position = mempiler_users.next_position
RETURNING next_position

-- name: raise_next_position
-- Makes a position that was given out not come again; imported items may leave positions out.
UPDATE mempiler_users SET next_position = :next_position
WHERE tenant = :tenant AND "user" = :user AND next_position < :next_position

-- name: void_claim
-- Gives a memory another version, which refuses the commit of whoever is writing it.
UPDATE mempiler_users SET version = :version, worker = '', claimed_until = 0
WHERE tenant = :tenant AND "user" = :user

-- Who was forgotten ---------------------------------------------------------------------------

-- name: select_forget_count
-- How often anybody was forgotten in this store; no row if nobody ever was.
SELECT value FROM mempiler_meta WHERE name = 'forgets'

-- name: increase_forget_count
-- Counts one more, and returns the new number. The values of this table are texts.
INSERT INTO mempiler_meta (name, value) VALUES ('forgets', '1')
ON CONFLICT (name) DO UPDATE
    SET value = CAST(CAST(mempiler_meta.value AS INTEGER) + 1 AS VARCHAR)
RETURNING value

-- name: log_forgotten
-- Notes under which number a user or session was forgotten the last time.
INSERT INTO mempiler_forgotten (name, number, at, erased) VALUES (:name, :number, :now, :erased)
ON CONFLICT (name) DO UPDATE
    SET number = excluded.number, at = excluded.at, erased = excluded.erased

-- name: delete_old_log_entries
-- Drops what is older than any write that may be under way, unless its bytes are still to be erased.
DELETE FROM mempiler_forgotten WHERE at < :now - :kept_seconds AND erased = 1

-- name: select_forgotten_since
-- The entries of users or sessions that were forgotten after the count that a writer began with.
SELECT number FROM mempiler_forgotten WHERE name IN :names AND number > :forget_count

-- name: select_unerased_log_entry
-- The entry of a user or session whose bytes may still be in the file.
SELECT name FROM mempiler_forgotten WHERE name = :name AND erased = 0

-- name: select_last_unerased_number
-- The highest number whose bytes may still be in the file; NULL if all are erased.
SELECT max(number) FROM mempiler_forgotten WHERE erased = 0

-- name: mark_erased
-- Notes that bytes are erased. What was forgotten meanwhile has a higher number.
UPDATE mempiler_forgotten SET erased = 1 WHERE number <= :last_number AND erased = 0

-- Items and turns -----------------------------------------------------------------------------

-- name: find_session
-- What is stored under the id of a session: NULL for the item or open session that there is not.
SELECT
    (SELECT position FROM mempiler_items
        WHERE tenant = :tenant AND "user" = :user AND id = :session) AS position,
    (SELECT digest FROM mempiler_items
        WHERE tenant = :tenant AND "user" = :user AND id = :session) AS digest,
    (SELECT max(number) FROM mempiler_open_turns
        WHERE tenant = :tenant AND "user" = :user AND session = :session) AS last_open_number

-- name: insert_item
-- Stores an item. Its state puts it into the queue in the same row.
INSERT INTO mempiler_items
    (tenant, "user", position, id, digest, json, state, attempts, error, added)
VALUES (:tenant, :user, :position, :id, :digest, :json, :state, :attempts, :error, :now)

-- name: select_items
-- All items of a user, in the order in which they came.
SELECT position, id, digest, json, state, attempts, error FROM mempiler_items
WHERE tenant = :tenant AND "user" = :user
ORDER BY position

-- name: select_items_of_turns
-- The items that have one of some turns.
SELECT position, json FROM mempiler_items
WHERE tenant = :tenant AND "user" = :user AND position IN
    (SELECT position FROM mempiler_turns
        WHERE tenant = :tenant AND "user" = :user AND turn IN :values)

-- name: delete_item
-- Deletes an item, and tells what is to be deleted with it.
DELETE FROM mempiler_items WHERE tenant = :tenant AND "user" = :user AND id = :id
RETURNING position, state

-- name: select_turn_ids
-- Those of some ids that turns of the user have.
SELECT turn FROM mempiler_turns WHERE tenant = :tenant AND "user" = :user AND turn IN :values

-- name: select_turn_ids_of_items
-- The ids of all turns of some items.
SELECT turn FROM mempiler_turns
WHERE tenant = :tenant AND "user" = :user AND position IN
    (SELECT position FROM mempiler_items
        WHERE tenant = :tenant AND "user" = :user AND id IN :values)

-- name: insert_turn_id
-- Takes the id of a turn; the position is 0 for a turn of an open session.
INSERT INTO mempiler_turns (tenant, "user", turn, position)
VALUES (:tenant, :user, :turn, :position)

-- name: delete_turn_ids
-- Frees the ids of some turns.
DELETE FROM mempiler_turns WHERE tenant = :tenant AND "user" = :user AND turn IN :turn_ids

-- name: delete_turns_of_item
-- Frees the ids of the turns of an item.
DELETE FROM mempiler_turns
WHERE tenant = :tenant AND "user" = :user AND position = :position

-- name: count_sessions_and_turns
-- How many sessions a user has, open ones included, and how many turns.
SELECT
    (SELECT count(*) FROM mempiler_items WHERE tenant = :tenant AND "user" = :user)
    + (SELECT count(DISTINCT session) FROM mempiler_open_turns
        WHERE tenant = :tenant AND "user" = :user) AS sessions,
    (SELECT count(*) FROM mempiler_turns WHERE tenant = :tenant AND "user" = :user) AS turns

-- Open sessions -------------------------------------------------------------------------------

-- name: select_open_turns
-- All turns of open sessions. The session that began first comes first; turns of a session come in
-- the order of their numbers alone, because the clock may have been set back between two of them.
SELECT session, json FROM mempiler_open_turns
WHERE tenant = :tenant AND "user" = :user
ORDER BY first_value(added) OVER (PARTITION BY session ORDER BY number), number

-- name: select_turns_of_open_session
-- The turns of one open session.
SELECT session, json FROM mempiler_open_turns
WHERE tenant = :tenant AND "user" = :user AND session = :session
ORDER BY number

-- name: insert_open_turn
-- Stores one turn of an open session.
INSERT INTO mempiler_open_turns (tenant, "user", session, number, json, added)
VALUES (:tenant, :user, :session, :number, :json, :now)

-- name: delete_open_turns_of_session
-- Deletes all turns of one open session.
DELETE FROM mempiler_open_turns
WHERE tenant = :tenant AND "user" = :user AND session = :session

-- name: select_idle_sessions
-- Open sessions whose last turn is old, or so far in the future that a wrong clock dated it.
SELECT tenant, "user", session FROM mempiler_open_turns
GROUP BY tenant, "user", session
HAVING max(added) < :now - :seconds OR max(added) > :now + :max_lead
ORDER BY max(added)

-- Metadata of sessions ------------------------------------------------------------------------

-- name: select_metadata
-- The metadata of all sessions of a user.
SELECT session, json FROM mempiler_metadata WHERE tenant = :tenant AND "user" = :user

-- name: select_metadata_of_sessions
-- The metadata of some sessions.
SELECT session, json FROM mempiler_metadata
WHERE tenant = :tenant AND "user" = :user AND session IN :values

-- name: select_sessions_of_turns
-- The sessions that have some turns, and their metadata: NULL where there are none.
SELECT t.turn, i.id AS session, m.json
FROM mempiler_turns t
JOIN mempiler_items i
    ON i.tenant = t.tenant AND i."user" = t."user" AND i.position = t.position
LEFT JOIN mempiler_metadata m
    ON m.tenant = t.tenant AND m."user" = t."user" AND m.session = i.id
WHERE t.tenant = :tenant AND t."user" = :user AND t.turn IN :values

-- name: upsert_metadata
-- Stores the metadata of a session in the place of its former ones.
INSERT INTO mempiler_metadata (tenant, "user", session, json)
VALUES (:tenant, :user, :session, :json)
ON CONFLICT (tenant, "user", session) DO UPDATE SET json = excluded.json

-- name: delete_metadata_of_session
-- Deletes the metadata of one session.
DELETE FROM mempiler_metadata
WHERE tenant = :tenant AND "user" = :user AND session = :session

-- The queue -----------------------------------------------------------------------------------

-- name: select_users_to_finalize
-- Users whose memory holds items that its finalized form does not; an index has these alone.
SELECT tenant, "user" FROM mempiler_memories WHERE finalized_position < position

-- name: select_tenants_with_state
-- Tenants with items in a state. The index on states gives the tenant behind the last one in one step,
-- however many items each has; DISTINCT would read all of them.
WITH RECURSIVE tenants(name) AS (
    SELECT min(tenant) FROM mempiler_items WHERE state = :state
    UNION ALL
    SELECT (SELECT min(tenant) FROM mempiler_items WHERE state = :state AND tenant > name)
    FROM tenants WHERE name IS NOT NULL
)
SELECT name FROM tenants WHERE name IS NOT NULL

-- name: select_users_with_state
-- The next users of a tenant with items in a state, by name; found as `select_tenants_with_state` finds
-- tenants.
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
-- How many users of each tenant are claimed now. Paused users have no worker. A claim that ends later
-- than any lease does was dated by a wrong clock.
SELECT tenant, count(*) AS users FROM mempiler_users
WHERE worker <> '' AND claimed_until > :now AND claimed_until <= :now + :max_lease
GROUP BY tenant

-- name: select_claimable_users
-- Those of some users who can be claimed: nobody else holds them, they have queued items or a memory to
-- finalize, and no other program wrote their memory. Those who wait longest come first.
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
-- Gives a user to a worker for the time of a lease, if nobody else holds the user; returns the version
-- of the memory.
UPDATE mempiler_users SET worker = :worker, claimed_until = :now + :lease
WHERE tenant = :tenant AND "user" = :user
    AND (worker = :worker
        OR claimed_until <= :now
        OR claimed_until > :now + :max_lease
        OR (:includes_paused AND worker = ''))
RETURNING version

-- name: claim_user.postgresql
-- As for SQLite. A row that another worker has locked, because it claims the same user, is passed over.
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
-- Gives a memory its next version, if it still has the version that the worker began with.
UPDATE mempiler_users SET version = :next_version, claimed_until = :now + :lease
WHERE tenant = :tenant AND "user" = :user AND version = :old_version

-- name: advance_version_and_release
-- The same, and gives the user back, unless another worker holds the user by now.
UPDATE mempiler_users SET version = :next_version,
    claimed_until = CASE worker WHEN :worker THEN :now ELSE claimed_until END,
    worker = CASE worker WHEN :worker THEN '' ELSE worker END
WHERE tenant = :tenant AND "user" = :user AND version = :old_version

-- name: mark_remembered.sqlite
-- Marks the items that a commit wrote: queued ones behind the position of the stored memory, and the one
-- at :item_position; partial items too, which the memory has been tried on again. Without INDEXED BY,
-- SQLite would look at all items of the user.
UPDATE mempiler_items
SET state = 'remembered', error = CASE state WHEN 'queued' THEN :note ELSE error END
WHERE tenant = :tenant AND "user" = :user AND position IN
    (SELECT position FROM mempiler_items INDEXED BY mempiler_items_state
        WHERE tenant = :tenant AND "user" = :user
            AND state IN ('queued', 'partial')
            AND position <= :last_position
            AND (state = 'partial'
                OR position = :item_position
                OR position > (SELECT coalesce(max(position), 0) FROM mempiler_memories
                    WHERE tenant = :tenant AND "user" = :user)))

-- name: mark_remembered.postgresql
-- As for SQLite; PostgreSQL finds the index itself.
UPDATE mempiler_items
SET state = 'remembered', error = CASE state WHEN 'queued' THEN :note ELSE error END
WHERE tenant = :tenant AND "user" = :user
    AND state IN ('queued', 'partial')
    AND position <= :last_position
    AND (state = 'partial'
        OR position = :item_position
        OR position > (SELECT coalesce(max(position), 0) FROM mempiler_memories
            WHERE tenant = :tenant AND "user" = :user))

-- name: mark_partial
-- Marks items that the memory holds but for some turns.
UPDATE mempiler_items SET state = 'partial'
WHERE tenant = :tenant AND "user" = :user AND state = 'remembered' AND id IN :item_ids

-- name: record_failure
-- Counts an attempt on an item, and gives the item up if :state says so; only while the memory has the
-- version that the worker began with.
UPDATE mempiler_items SET state = :state, attempts = attempts + 1, error = :error
WHERE tenant = :tenant AND "user" = :user AND position = :position AND state = 'queued'
    AND EXISTS (SELECT 1 FROM mempiler_users
        WHERE tenant = :tenant AND "user" = :user AND version = :version)

-- name: release_user
-- Gives a user back, if the worker still holds the user.
UPDATE mempiler_users SET worker = '', claimed_until = :now
WHERE tenant = :tenant AND "user" = :user AND worker = :worker

-- name: pause_user
-- Lets nobody claim a user for a while; one whom a worker holds is left alone.
UPDATE mempiler_users SET claimed_until = :now + :seconds
WHERE tenant = :tenant AND "user" = :user AND worker = ''

-- name: requeue_failed
-- Queues failed items again.
UPDATE mempiler_items SET state = 'queued', attempts = 0
WHERE tenant = :tenant AND "user" = :user AND state = 'failed'

-- name: queue_all_items
-- Queues all items of a user again, for a memory that is written anew.
UPDATE mempiler_items SET state = 'queued', attempts = 0, error = ''
WHERE tenant = :tenant AND "user" = :user

-- Memories ------------------------------------------------------------------------------------

-- name: upsert_memory
-- Stores what made a memory, and how far it goes, in the place of what was stored.
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
-- Stores what a commit changed in a memory; number 0 is the whole text.
INSERT INTO mempiler_changes (tenant, "user", number, memory, finalized)
VALUES (:tenant, :user, :number, :memory, :finalized)

-- Vectors -------------------------------------------------------------------------------------

-- name: select_vectors
-- Those of some vectors that are stored.
SELECT key, vector FROM mempiler_vectors
WHERE tenant = :tenant AND "user" = :user AND key IN :values

-- name: upsert_vector
-- Stores a vector in the place of the one that has its key.
INSERT INTO mempiler_vectors (tenant, "user", key, vector)
VALUES (:tenant, :user, :key, :vector)
ON CONFLICT (tenant, "user", key) DO UPDATE SET vector = excluded.vector

-- Amendments ----------------------------------------------------------------------------------

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
-- Stores one amendment.
INSERT INTO mempiler_amendments
    (tenant, "user", number, action, entry, kind, old_text, new_text, sources, at, by, undoes)
VALUES
    (:tenant, :user, :number, :action, :entry, :kind, :old_text, :new_text, :sources, :at, :by,
    :undoes)

-- name: delete_amendment
-- Deletes one amendment, whose entry rests on a turn that is gone.
DELETE FROM mempiler_amendments
WHERE tenant = :tenant AND "user" = :user AND number = :number

-- Everything of a user ------------------------------------------------------------------------

-- name: delete_items
-- Deletes all items of a user.
DELETE FROM mempiler_items WHERE tenant = :tenant AND "user" = :user

-- name: delete_turns
-- Frees the ids of all turns of a user.
DELETE FROM mempiler_turns WHERE tenant = :tenant AND "user" = :user

-- name: delete_open_turns
-- Deletes the turns of all open sessions of a user.
DELETE FROM mempiler_open_turns WHERE tenant = :tenant AND "user" = :user

-- name: delete_metadata
-- Deletes the metadata of all sessions of a user.
DELETE FROM mempiler_metadata WHERE tenant = :tenant AND "user" = :user

-- name: delete_memory
-- Deletes what made the memory of a user; its text stands in the changes.
DELETE FROM mempiler_memories WHERE tenant = :tenant AND "user" = :user

-- name: delete_changes
-- Deletes the text of the memory of a user.
DELETE FROM mempiler_changes WHERE tenant = :tenant AND "user" = :user

-- name: delete_vectors
-- Deletes all vectors of a user's texts.
DELETE FROM mempiler_vectors WHERE tenant = :tenant AND "user" = :user

-- name: delete_amendments
-- Deletes all amendments of a user.
DELETE FROM mempiler_amendments WHERE tenant = :tenant AND "user" = :user

-- name: delete_user
-- Deletes the row of a user, and with it the version that a worker's claim names.
DELETE FROM mempiler_users WHERE tenant = :tenant AND "user" = :user

-- The store -----------------------------------------------------------------------------------

-- name: write_check
-- Writes a row that means nothing, to see whether the store can be written.
INSERT INTO mempiler_meta (name, value) VALUES ('checked', :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
