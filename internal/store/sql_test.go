package store

import (
	"context"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/errandhq/errand/internal/testdb"
	"github.com/errandhq/errand/internal/txsql"
)

// forbidden is what CockroachDB refuses, or what protects nothing there: the one SQL text must do without.
var forbidden = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`(?i)\bSKIP\s+LOCKED\b`), "skips free rows on CockroachDB, and is no queue by itself"},
	{regexp.MustCompile(`(?i)\bpg_(try_)?advisory`), "advisory locks protect nothing on CockroachDB"},
	{regexp.MustCompile(`(?i)\b(LISTEN|NOTIFY|pg_notify)\b`), "does not exist on CockroachDB"},
	{regexp.MustCompile(`(?i)\b(SERIAL|BIGSERIAL|SEQUENCE|IDENTITY)\b`), "ids come from the client"},
	{regexp.MustCompile(`(?i)\bFOR\s+(UPDATE|SHARE|NO\s+KEY)`), "no locks: every write is guarded"},
	{regexp.MustCompile(`(?i)\bCREATE\s+(TYPE|FUNCTION|TRIGGER)\b`), "SMALLINT and CHECK instead; no code in the database"},
	{regexp.MustCompile(`(?i)\bCONCURRENTLY\b`), "does not exist on CockroachDB"},
	{regexp.MustCompile(`(?i)\b(INCLUDE|STORING)\s*\(`), "INCLUDE here, STORING there: neither"},
	{regexp.MustCompile(`(?i)\bINT(EGER)?\b`), "64 bits there and 32 here: SMALLINT or BIGINT"},
	{regexp.MustCompile(`(?i)\bSAVEPOINT\b`), "a lost-write bug in some versions"},
	{regexp.MustCompile(`[a-z0-9_)\]]\s+/\s+[a-z0-9_($]`), "division of integers is decimal on CockroachDB"},
	{regexp.MustCompile(`(?is)\b(UPDATE|DELETE)\b[^;]*\bLIMIT\b[^;]*$`), ""},
}

var statement = regexp.MustCompile(`(?m)^\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\b`)

// statements finds the SQL constants of this package and of internal/txsql, whole where they are put together of parts.
func statements(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, dir := range []string{".", "../txsql"} {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		set := token.NewFileSet()
		var files []*ast.File
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
		info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
		// What other packages declare is missing, and of no interest: constants are known all the same.
		_, _ = (&types.Config{Error: func(error) {}}).Check(dir, set, files, info)
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				expr, is := n.(ast.Expr)
				if !is || info.Types[expr].Value == nil || info.Types[expr].Value.Kind() != constant.String {
					return true
				}
				if text := constant.StringVal(info.Types[expr].Value); statement.MatchString(text) {
					found[set.Position(expr.Pos()).String()] = text
				}
				return false
			})
		}
	}
	for _, pattern := range []string{"migrations/shared/*.sql", "migrations/postgres/*.sql", "migrations/cockroach/*.sql"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, name := range files {
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			found[name] = string(raw)
		}
	}
	return found
}

func TestOneTextForBothDatabases(t *testing.T) {
	all := statements(t)
	if len(all) < 30 {
		t.Fatalf("%d statements found: the search is broken", len(all))
	}
	for where, sql := range all {
		sql = regexp.MustCompile(`(?m)--.*$`).ReplaceAllString(sql, "")
		for _, f := range forbidden {
			if f.why != "" && f.pattern.MatchString(sql) {
				t.Errorf("%s: %s: %s", where, f.pattern.FindString(sql), f.why)
			}
		}
		if strings.Contains(sql, "crdb_internal_region") && regexp.MustCompile(`region = \$\d+(\s|$)`).MatchString(sql) {
			t.Errorf("%s: a region is bound without its type", where)
		}
	}
}

// P10: every statement on a regional table binds the region, or joins it from a row source that does.
func TestEveryStatementBindsTheRegion(t *testing.T) {
	regional := regexp.MustCompile(`(?i)\b(FROM|UPDATE|JOIN|INTO)\s+(tasks|task_attempts|starts|sessions|idempotency_keys|ledger|task_edges|task_children|graph_tasks)\b`)
	for where, sql := range statements(t) {
		if strings.HasSuffix(where, ".sql") || !regional.MatchString(sql) {
			continue
		}
		if strings.Contains(sql, "/* every region */") {
			continue // an operator's, and rare
		}
		if !strings.Contains(sql, "$1::crdb_internal_region") {
			t.Errorf("%s: reads or writes a regional table without binding the region: it would ask every region", where)
		}
	}
}

// explained returns the plan that the hot pool uses for a statement: the generic one, whatever the arguments.
func explained(t *testing.T, s *Store, sql string) string {
	t.Helper()
	ctx := context.Background()
	conn, err := s.hot.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	params := 0
	for _, m := range regexp.MustCompile(`\$(\d+)`).FindAllStringSubmatch(sql, -1) {
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		params = max(params, n)
	}
	if _, err := conn.Exec(ctx, "PREPARE explained AS "+sql); err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
	defer func() {
		if _, err := conn.Exec(ctx, "DEALLOCATE explained"); err != nil {
			t.Error(err)
		}
	}()
	nulls := strings.TrimSuffix(strings.Repeat("NULL, ", params), ", ")
	rows, err := conn.Query(ctx, "EXPLAIN EXECUTE explained ("+nulls+")")
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// fill makes a table as it is in the middle of a life: a million rows, most of them ended.
const fill = `
INSERT INTO tasks (region, id, shard, tier, state, class, attempt, tolerance_us, created_at, due, ready_at, run_at, wake_at, started_at,
    ended_at, session_id, worker_id, tenant, kind)
SELECT 'eu', (lpad(to_hex(i % 16), 2, '0') || lpad(to_hex(i), 30, '0'))::uuid, i % 16, 2, s, 7, CASE WHEN s >= 3 THEN 1 ELSE 0 END, 60000000,
    now() - i * INTERVAL '1 millisecond', now(), CASE WHEN s >= 2 THEN now() END, CASE WHEN s = 1 THEN now() END, CASE WHEN s = 1 THEN now() END,
    CASE WHEN s >= 3 THEN now() END, CASE WHEN s >= 5 THEN now() END,
    CASE WHEN s >= 3 THEN (lpad(to_hex(i % 3), 32, '0'))::uuid END, CASE WHEN s >= 3 THEN gen_random_uuid() END, 'tenant-' || (i % 50), 'k'
FROM (SELECT i, CASE WHEN i % 100 < 95 THEN 5 WHEN i % 100 = 95 THEN 1 WHEN i % 100 < 98 THEN 3 ELSE 2 END AS s
      FROM generate_series(1, $1::bigint) AS i) x`

// hotStatements are the statements of scheduling, with the index that each must go by.
var hotStatements = map[string]struct{ sql, index string }{
	"claim":         {claimTasks, "tasks_pkey"},
	"read claimed":  {readStarts, "tasks_pkey"},
	"payloads":      {readPayloads, "tasks_pkey"},
	"end succeeded": {endSucceeded, "tasks_pkey"},
	"end otherwise": {endOtherwise, "tasks_pkey"},
	"read ended":    {readEnded, "tasks_pkey"},
	"attach":        {attachTasks, "tasks_pkey"},
	"wake":          {wakeTasks, "tasks_pkey"},
	"expire":        {expireTasks, "tasks_pkey"},
	"read moved":    {readMoved, "tasks_pkey"},
	"cancel":        {cancelTasks, "tasks_pkey"},
	"read canceled": {readCanceled, "tasks_pkey"},
	"states":        {readStates, "tasks_pkey"},
	"read task":     {readTask, "tasks_pkey"},
	"discover":      {discoverGroups, "tasks_by_ready"},
	"refill":        {refillGroups, "tasks_by_ready"},
	"timed":         {readTimed, "tasks_by_wake"},
	"running":       {readRunning, "tasks_pkey"},
	"orphans":       {readOrphans, "tasks_pkey"},
	"fold starts":   {foldStarts, "tasks_pkey"},
	"list":          {listTasks, "tasks_by_tenant"},
	"read children": {readChildren, "tasks_pkey"},
	"release":       {releaseTasks, "tasks_pkey"},
	"forsake":       {forsakeTasks, "tasks_pkey"},
	"sleep":         {sleepTasks, "tasks_pkey"},
	"rest":          {restParents, "tasks_pkey"},
	"read edges":    {readEdges, "tasks_pkey"},
	"adopt":         {adoptChildren, "tasks_pkey"},
	"unique keys":   {txsql.ReadHolders, "tasks_by_open_key"},
}

// An edge is closed by its key: the index of outcomes would show all open edges of its child, once for each of its parents.
func TestEdgesAreClosedByTheirKey(t *testing.T) {
	s := open(t, testdb.ReadCommitted)
	for when, prepare := range map[string]string{"on a fresh table": "SELECT 1", "with many edges to one child": `
		INSERT INTO task_edges (region, child_id, parent_id, parent_region, place)
		SELECT 'eu', '00000000-0000-0000-0000-000000000001', gen_random_uuid(), 'eu', i FROM generate_series(1, 20000) AS i`} {
		if _, err := s.general.Exec(context.Background(), prepare); err != nil {
			t.Fatal(err)
		}
		if plan := explained(t, s, closeEdges); !strings.Contains(plan, "task_edges_pkey") || strings.Contains(plan, "task_edges_by_outcome") {
			t.Errorf("%s:\n%s", when, plan)
		}
		for _, sql := range []string{readEdges, readChildren} {
			if plan := explained(t, s, sql); strings.Contains(plan, "Seq Scan on task_") || strings.Contains(plan, "Index Scan using task_edges_pkey") {
				t.Errorf("%s:\n%s", when, plan)
			}
		}
	}
}

// A table just made has no statistics, and a grown one has others: on both every hot statement goes by its index, and none scans
// the tasks. B53.
func TestHotStatementsGoByTheirIndex(t *testing.T) {
	s := open(t, testdb.ReadCommitted)
	check := func(when string) {
		t.Helper()
		for name, h := range hotStatements {
			plan := explained(t, s, h.sql)
			others := regexp.MustCompile(`(?:using|Scan on) (tasks_\w+)`).FindAllStringSubmatch(plan, -1)
			for _, m := range others {
				if m[1] != h.index {
					t.Errorf("%s, %s: goes by %s, not %s:\n%s", name, when, m[1], h.index, plan)
				}
			}
			if strings.Contains(plan, "Seq Scan on tasks") || len(others) == 0 {
				t.Errorf("%s, %s: does not go by %s:\n%s", name, when, h.index, plan)
			}
		}
	}
	check("on a fresh table")
	ctx := context.Background()
	if _, err := s.general.Exec(ctx, fill, int64(1_000_000)); err != nil {
		t.Fatal(err)
	}
	check("with a million rows and no statistics")
	if _, err := s.general.Exec(ctx, "ANALYZE tasks"); err != nil {
		t.Fatal(err)
	}
	check("with a million rows, analyzed")
}
