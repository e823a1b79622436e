package errand

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// OnceTable is the statement that makes the table in which [Once] remembers effects, in the user's own database.
const OnceTable = `
CREATE TABLE IF NOT EXISTS errand_once (
    tenant     TEXT NOT NULL,
    effect_key TEXT NOT NULL,
    name       TEXT NOT NULL,
    at         TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, effect_key, name)
)`

// once remembers an effect. Guard: it is not there yet; a transaction that is about to do the same waits for the other's end.
const once = `INSERT INTO errand_once (tenant, effect_key, name) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`

// Once tells whether the named effect of a task is still to be done, and remembers in the caller's transaction that it is: when
// the transaction commits, the effect and the memory of it are there together, and no other attempt and no redrive of the task
// does it again. Do the effect in the same transaction, only when first is true.
//
// name tells the effects of one task apart. The table is made by [OnceTable].
func Once(ctx context.Context, tx pgx.Tx, a *Attempt, name string) (first bool, err error) {
	tag, err := tx.Exec(ctx, once, a.Tenant, a.EffectKey, name)
	if err != nil {
		return false, fmt.Errorf("errand: remember effect %s of %s: %w", name, a.TaskID, err)
	}
	return tag.RowsAffected() == 1, nil
}
