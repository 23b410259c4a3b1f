-- The statements that read a store, and create nothing.

-- name: count_users
-- How many users there are, of all tenants together.
SELECT count(*) FROM mempiler_users
