package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/scheduler"
)

// openSession stores a session, or renews it when it is there.
// Guard: not ended.
const openSession = `
INSERT INTO sessions AS s (region, id, address, started_at, expires_at, idle, role, home)
VALUES ($1::crdb_internal_region, $2::uuid, $3::text, now(), now() + $4::bigint * INTERVAL '1 microsecond', $5::boolean, $6::smallint,
    $7::text)
ON CONFLICT (region, id) DO UPDATE SET expires_at = excluded.expires_at WHERE s.ended_at IS NULL
RETURNING s.expires_at`

// renewSession extends a session, however long ago it expired: a store that was away for everybody kills nobody.
// Guard: not ended.
const renewSession = `
UPDATE sessions s SET expires_at = now() + $3::bigint * INTERVAL '1 microsecond', idle = $4::boolean, role = $5::smallint
WHERE s.region = $1::crdb_internal_region AND s.id = $2::uuid AND s.ended_at IS NULL
RETURNING s.expires_at`

// listSessions lists the sessions of a region that nobody has ended, with the store's clock. The clock has a row of its own,
// so that it is told also when there are none.
const listSessions = `
SELECT c.now, s.id, s.address, s.started_at, s.expires_at, s.idle, s.role, s.home
FROM (SELECT clock_timestamp() AS now) c
LEFT JOIN sessions s ON s.region = $1::crdb_internal_region AND s.ended_at IS NULL
ORDER BY s.id
LIMIT 1000`

// endSession ends one session.
// Guard: not ended.
const endSession = `
UPDATE sessions s SET ended_at = now() WHERE s.region = $1::crdb_internal_region AND s.id = $2::uuid AND s.ended_at IS NULL`

// endExpired ends others' sessions that have expired.
// Guard: not ended, expired by the store's clock; and the caller's own session neither.
const endExpired = `
UPDATE sessions s SET ended_at = now()
WHERE s.region = $1::crdb_internal_region AND s.ended_at IS NULL AND s.expires_at < now() AND s.id <> $2::uuid
    AND EXISTS (
        SELECT 1 FROM sessions o
        WHERE o.region = $1::crdb_internal_region AND o.id = $2::uuid AND o.ended_at IS NULL AND o.expires_at > now())
RETURNING s.id`

// purgeSessions forgets sessions that ended long ago. Their running rows, should there be any, are reclaimed as those of a
// missing session.
const purgeSessions = `
DELETE FROM sessions s WHERE s.region = $1::crdb_internal_region AND s.ended_at < now() - INTERVAL '1 day'`

// OpenSession stores a new session.
func (s *Store) OpenSession(ctx context.Context, one scheduler.Session, ttl time.Duration) (scheduler.Renewal, error) {
	return s.renew(ctx, one.Region, openSession, one.Region, [16]byte(one.ID), one.Address, ttl.Microseconds(), one.Idle,
		int16(one.Role), optionalText(one.Home))
}

// RenewSession extends a session unless it was ended, and notes its role and whether it is idle.
func (s *Store) RenewSession(ctx context.Context, one scheduler.Session, ttl time.Duration) (scheduler.Renewal, error) {
	return s.renew(ctx, one.Region, renewSession, one.Region, [16]byte(one.ID), ttl.Microseconds(), one.Idle, int16(one.Role))
}

func (s *Store) renew(ctx context.Context, region, sql string, args ...any) (scheduler.Renewal, error) {
	var r scheduler.Renewal
	alive, err := rows(ctx, s.control, "renew session", sql, pgx.RowTo[time.Time], args...)
	if err != nil {
		return r, err
	}
	r.Alive = len(alive) == 1
	listed, err := s.Sessions(ctx, region)
	r.Now, r.Sessions = listed.Now, listed.Sessions
	return r, err
}

// Sessions lists the sessions of a region that nobody has ended.
func (s *Store) Sessions(ctx context.Context, region string) (scheduler.Renewal, error) {
	var r scheduler.Renewal
	_, err := rows(ctx, s.control, "list sessions", listSessions, func(row pgx.CollectableRow) (struct{}, error) {
		var id *[16]byte
		var address, home *string
		var started, expires *time.Time
		var idle *bool
		var role *int16
		if err := row.Scan(&r.Now, &id, &address, &started, &expires, &idle, &role, &home); err != nil {
			return struct{}{}, err
		}
		if id != nil {
			r.Sessions = append(r.Sessions, scheduler.Session{
				Region: region, ID: *id, Address: textOf(address), StartedAt: timeOf(started), ExpiresAt: timeOf(expires),
				Idle: idle != nil && *idle, Role: roleOf(role), Home: textOf(home),
			})
		}
		return struct{}{}, nil
	}, region)
	r.Now = r.Now.UTC()
	return r, err
}

func roleOf(role *int16) scheduler.Role {
	if role == nil {
		return scheduler.Native
	}
	return scheduler.Role(*role)
}

// EndSession ends the caller's own session.
func (s *Store) EndSession(ctx context.Context, region string, id scheduler.SessionID) error {
	return s.exec(ctx, "end session", endSession, region, [16]byte(id))
}

// EndExpired ends others' sessions that have expired.
func (s *Store) EndExpired(ctx context.Context, region string, by scheduler.SessionID) ([]scheduler.SessionID, error) {
	ended, err := rows(ctx, s.control, "end expired sessions", endExpired, func(row pgx.CollectableRow) (scheduler.SessionID, error) {
		var raw [16]byte
		err := row.Scan(&raw)
		return raw, err
	}, region, [16]byte(by))
	if err != nil {
		return nil, err
	}
	return ended, s.exec(ctx, "purge sessions", purgeSessions, region)
}

// exec runs a statement that returns nothing.
func (s *Store) exec(ctx context.Context, what, sql string, args ...any) error {
	ctx = named(ctx, what)
	return translate(what, again(ctx, func() error {
		_, err := s.control.Exec(ctx, sql, args...)
		return err
	}))
}
