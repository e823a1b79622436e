package errand

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	"github.com/errandhq/errand/internal/txsql"
)

// TxScope says whose task is submitted and where: who has the database's credentials is trusted to say so.
type TxScope struct {
	Region string // the region of the schedulers that serve this store
	Tenant string
}

// Bounds of a transactional submit; the API has the same.
const (
	txPayloadMax = 256 << 10
	txKeyMax     = 255
	txLimitsMax  = 8
)

var kindPattern = regexp.MustCompile(`^[a-z][a-z0-9._-]{0,62}$`)

// SubmitTx stores a task in the caller's own transaction, when the caller's tables share a database with Errand's store: the
// task is there when, and only when, the transaction commits. It returns the task's handle.
//
// No rate of the tenant and no cap on its open tasks holds here: the call does not pass a scheduler.
// What an operator has set for the kind does not count here either: a task in a transaction has the defaults that [Spec] names.
//
// It is never urgent: schedulers find it when they look at their lanes next, within some seconds. With an idempotency key that
// stands for a task already, nothing is stored and Existed is set; a key of another request is ErrKeyReused. So it is with a unique key
// that an open task holds, or the error is ErrKeyHeld when the spec says RefuseHeld; while another transaction that submits the same
// key is open, the call waits for its end. A rollback frees both keys.
func SubmitTx(ctx context.Context, tx pgx.Tx, scope TxScope, spec Spec) (Submitted, error) {
	if err := checkTx(scope, &spec); err != nil {
		return Submitted{}, err
	}
	number, err := regionNumber(ctx, tx, scope.Region)
	if err != nil {
		return Submitted{}, err
	}
	id, err := newTaskID(number)
	if err != nil {
		return Submitted{}, err
	}
	b, err := newTxInsert(scope, &spec, id)
	if err != nil {
		return Submitted{}, err
	}
	for range txTriesMax {
		got, err := b.submit(ctx, tx, scope, &spec)
		if got.ID != "" || err != nil {
			return got, err
		}
	}
	return Submitted{}, fmt.Errorf("%w: the holders of the unique key end as fast as they are looked at", ErrUnavailable)
}

// txTriesMax bounds how often a task is tried whose unique key was held by one that has ended when it is looked at.
const txTriesMax = 3

// txInsert is the one task of a transactional submit.
type txInsert struct {
	*txsql.Batch
	id    [16]byte
	state State
}

// submit executes the insert once. It names no task when whatever was in its way is gone.
func (b *txInsert) submit(ctx context.Context, tx pgx.Tx, scope TxScope, spec *Spec) (Submitted, error) {
	failed := func(err error) (Submitted, error) {
		return Submitted{}, fmt.Errorf("errand: submit in a transaction: %w", err)
	}
	rows, err := tx.Query(ctx, b.Insert(), b.Args(scope.Region, [16]byte{}, b.id)...)
	if err != nil {
		return failed(err)
	}
	stored := 0
	for rows.Next() {
		stored++
	}
	if err := rows.Err(); err != nil {
		return failed(err)
	}
	if stored == 1 {
		return Submitted{ID: handle(scope.Region, b.id), State: b.state}, nil
	}
	if len(b.Keys) > 0 && len(b.Uniques) > 0 {
		if _, err := tx.Exec(ctx, txsql.DropUnusedKeys, scope.Region, []string{scope.Tenant}, b.Keys, b.IDs); err != nil {
			return failed(err)
		}
	}
	got, err := standingTx(ctx, tx, scope, spec)
	if errors.Is(err, pgx.ErrNoRows) && spec.UniqueKey != "" {
		got, err = holderTx(ctx, tx, scope, spec)
	}
	switch {
	case errors.Is(err, pgx.ErrNoRows) && spec.UniqueKey != "":
		return Submitted{}, nil
	case err != nil && !errors.Is(err, ErrKeyReused) && !errors.Is(err, ErrKeyHeld):
		return failed(err)
	}
	return got, err
}

// readKey tells which task an idempotency key stands for.
const readKey = `
SELECT k.fingerprint, k.task_region, k.task_id, COALESCE(t.state, 0) FROM (
    SELECT ` + txsql.KeyRegion + ` AS region, u.* FROM (SELECT $2::text AS tenant, $3::text AS key) u LEFT JOIN tenants n ON n.name = u.tenant OFFSET 0
) x
JOIN idempotency_keys k ON k.region = x.region AND k.tenant = x.tenant AND k.key = x.key
LEFT JOIN tasks t ON t.region = k.task_region::crdb_internal_region AND t.id = k.task_id`

func standingTx(ctx context.Context, tx pgx.Tx, scope TxScope, spec *Spec) (Submitted, error) {
	var print []byte
	var region string
	var id [16]byte
	var state int16
	err := tx.QueryRow(ctx, readKey, scope.Region, scope.Tenant, spec.IdempotencyKey).Scan(&print, &region, &id, &state)
	if err != nil {
		return Submitted{}, err
	}
	got := Submitted{ID: handle(region, id), State: State(state), Existed: true}
	if string(print) != string(fingerprint(spec)) {
		return got, fmt.Errorf("%w: it stands for %s", ErrKeyReused, got.ID)
	}
	return got, nil
}

func holderTx(ctx context.Context, tx pgx.Tx, scope TxScope, spec *Spec) (Submitted, error) {
	var tenant, key, region string
	var id [16]byte
	var state int16
	var print []byte
	err := tx.QueryRow(ctx, txsql.ReadHolders, scope.Region, []string{scope.Tenant}, []string{spec.UniqueKey}).
		Scan(&tenant, &key, &region, &id, &state, &print)
	if err != nil {
		return Submitted{}, err
	}
	got := Submitted{ID: handle(region, id), State: State(state), Existed: true}
	if spec.RefuseHeld {
		got.Existed = false
		return got, fmt.Errorf("%w: it is %s", ErrKeyHeld, got.ID)
	}
	return got, nil
}

func checkTx(scope TxScope, spec *Spec) error {
	if err := spec.check("spec"); err != nil {
		return err
	}
	bad := func(field, why string) error { return fmt.Errorf("%w: %s: %s", ErrInvalid, field, why) }
	switch {
	case scope.Region == "":
		return bad("Region", "must be set")
	case scope.Tenant == "":
		return bad("Tenant", "must be set")
	case !kindPattern.MatchString(spec.Kind):
		return bad("Kind", "a letter, then up to 62 of a-z 0-9 . _ -")
	case len(spec.Payload) > txPayloadMax:
		return bad("Payload", "at most 256 KiB")
	case spec.Tier == Urgent:
		return bad("Tier", "a task in a transaction cannot be urgent: submit it after the commit")
	case len(spec.Parents) > 0:
		return bad("Parents", "a task in a transaction cannot wait for others: submit it after the commit")
	case spec.RejectInfeasible:
		return bad("RejectInfeasible", "a transaction does not ask a scheduler: nobody can tell")
	case spec.Tier < 0 || spec.Tier > Deferrable:
		return bad("Tier", "unknown")
	case !storableKey(spec.IdempotencyKey):
		return bad("IdempotencyKey", "at most 255 bytes of UTF-8 without NUL")
	case !storableKey(spec.UniqueKey):
		return bad("UniqueKey", "at most 255 bytes of UTF-8 without NUL")
	case len(spec.Limits) > txLimitsMax:
		return bad("Limits", "at most 8")
	case spec.DelayTolerance < 0 || spec.Delay < 0 || spec.StartWithin < 0 || spec.AttemptTimeout < 0 || spec.MaxAttempts < 0:
		return bad("Spec", "no time or number may be negative")
	}
	for i, l := range spec.Limits {
		switch {
		case !kindPattern.MatchString(l.Name):
			return bad("Limits", "a name is a letter, then up to 62 of a-z 0-9 . _ -")
		case len(l.Key) > txKeyMax:
			return bad("Limits", "a key has at most 255 bytes")
		case slices.Contains(spec.Limits[:i], l):
			return bad("Limits", l.Name+" stands there twice")
		}
	}
	if field, why := spec.checkNeeds(); field != "" {
		return bad(field, why)
	}
	return nil
}

func storableKey(key string) bool { return storable(key, txKeyMax) }

// storedSpec is the form in which the store keeps what few tasks set.
type storedSpec struct {
	AttemptTimeout  time.Duration     `json:"attempt_timeout,omitempty"`
	MaxAttempts     int               `json:"max_attempts,omitempty"`
	MaxWorkerLosses int               `json:"max_worker_losses,omitempty"`
	Retry           *storedRetry      `json:"retry,omitempty"`
	Exclusive       bool              `json:"exclusive,omitempty"`
	Limits          []storedLimit     `json:"limits,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
	Shape           *storedShape      `json:"shape,omitempty"`
	RefuseHeld      bool              `json:"refuse_held,omitempty"`
}

type storedRetry struct {
	Initial      time.Duration `json:"initial,omitempty"`
	Max          time.Duration `json:"max,omitempty"`
	Multiplier   float64       `json:"multiplier,omitempty"`
	NonRetryable []string      `json:"non_retryable,omitempty"`
}

// storedLimit is a limit as the store keeps it, sorted with the others.
type storedLimit struct {
	Name string `json:"name"`
	Key  string `json:"key,omitempty"`
}

func storedLimits(limits []Limit) []storedLimit {
	var stored []storedLimit
	for _, l := range limits {
		stored = append(stored, storedLimit(l))
	}
	slices.SortFunc(stored, func(a, b storedLimit) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Key, b.Key))
	})
	return stored
}

// classOf hashes what decides where the task may start, as schedulers do.
func classOf(kind string, spec *storedSpec) (int16, error) {
	var parts []string
	for _, l := range spec.Limits {
		parts = append(parts, "="+l.Name, l.Key)
	}
	if spec.Shape != nil {
		shape, err := json.Marshal(spec.Shape)
		if err != nil {
			return 0, err
		}
		parts = append(parts, "#"+string(shape))
	}
	return int16(uint16(txsql.ClassOf(kind, parts...))), nil
}

var defaultTolerance = map[Tier]time.Duration{Standard: time.Minute, Deferrable: 24 * time.Hour}

func newTxInsert(scope TxScope, spec *Spec, id [16]byte) (*txInsert, error) {
	stored := storedSpec{
		AttemptTimeout: spec.AttemptTimeout, MaxAttempts: spec.MaxAttempts, MaxWorkerLosses: spec.MaxWorkerLosses,
		Exclusive: spec.Exclusive, Labels: spec.Labels, RefuseHeld: spec.RefuseHeld, Limits: storedLimits(spec.Limits),
		Shape: spec.shape(),
	}
	if r := spec.Retry; r.Initial != 0 || r.Max != 0 || r.Multiplier != 0 || len(r.NonRetryable) > 0 {
		if math.IsNaN(r.Multiplier) || math.IsInf(r.Multiplier, 0) {
			return nil, fmt.Errorf("%w: Retry.Multiplier: must be a finite number", ErrInvalid)
		}
		stored.Retry = &storedRetry{r.Initial, r.Max, r.Multiplier, r.NonRetryable}
	}
	raw, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	specText := string(raw)
	if specText == "{}" {
		specText = ""
	}
	class, err := classOf(spec.Kind, &stored)
	if err != nil {
		return nil, err
	}
	tier := spec.Tier
	if tier == 0 {
		tier = Standard
	}
	tolerance := spec.DelayTolerance
	if tolerance == 0 {
		tolerance = defaultTolerance[tier]
	}
	now := time.Now()
	runAt, startBy := moment(spec.RunAt, spec.Delay, now), moment(spec.StartBy, spec.StartWithin, now)
	state := Ready
	if runAt.After(now) {
		state = Scheduled
	} else {
		runAt = time.Time{}
	}
	b := txsql.NewBatch(1)
	b.IDs, b.Shards, b.Workers, b.Traces, b.Payloads = [][16]byte{id}, []int16{int16(id[0])}, []*[16]byte{nil}, []*string{nil}, [][]byte{spec.Payload}
	b.Shape = []int16{b.ShapeOf(txsql.Shape{
		Tier: int16(tier), State: int16(state), Class: class, ToleranceUS: tolerance.Microseconds(),
		RunAt: runAt, StartBy: startBy, Tenant: scope.Tenant, Kind: spec.Kind, ContentType: spec.ContentType, Spec: specText,
	})}
	if spec.IdempotencyKey != "" {
		b.Keys, b.Prints = []string{spec.IdempotencyKey}, [][]byte{fingerprint(spec)}
	}
	if spec.UniqueKey != "" {
		b.Uniques = []string{spec.UniqueKey}
	}
	return &txInsert{b, id, state}, nil
}

// moment is a time that is given, or counted from now; zero for neither.
func moment(at time.Time, in time.Duration, now time.Time) time.Time {
	if at.IsZero() && in > 0 {
		return now.Add(in)
	}
	return at
}

// fingerprint is the same as the API's: a key may be used again over either way.
func fingerprint(spec *Spec) []byte {
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(spec.message())
	if err != nil { // invalid UTF-8: the store refuses it anyway
		return nil
	}
	sum := sha256.Sum256(raw)
	return sum[:]
}

// readRegion reads the number of a region. A deployment with one region may have none written down: then it is 0.
const readRegion = `SELECT COALESCE((SELECT r.number FROM regions r WHERE r.name = $1::text), 0)`

func regionNumber(ctx context.Context, tx pgx.Tx, region string) (byte, error) {
	var number int16
	if err := tx.QueryRow(ctx, readRegion, region).Scan(&number); err != nil {
		return 0, fmt.Errorf("errand: region %s: %w", region, err)
	}
	return byte(number), nil
}

// newTaskID makes an id in a lane of a region drawn by chance: lane, milliseconds, randomness.
func newTaskID(region byte) ([16]byte, error) {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return id, fmt.Errorf("errand: the system has no randomness: %w", err)
	}
	id[0] = region*txsql.ShardsPerRegion + id[0]%txsql.ShardsPerRegion
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(time.Now().UnixMilli()))
	copy(id[1:7], ms[2:])
	return id, nil
}
