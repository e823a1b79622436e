package floorplan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// module is the path under which the packages of the tree are imported.
const module = "github.com/errandhq/errand"

// floor is a package and what it may import of this module.
type floor struct {
	dir     string   // from the root of the tree; "." is the root
	imports []string // folders; those that end in "/..." with all below them
	pure    bool     // no context, log, clock, goroutine, driver or randomness of its own
}

// floors are all packages, lowest first: a package imports only what stands above it in this list.
var floors = []floor{
	// 1 facts
	{dir: "regions", pure: true},
	{dir: "fairness", pure: true},
	{dir: "scheduler/cron", pure: true}, // knows the calendar and zones, and no task
	{dir: "internal/txsql", pure: true}, // what the store and the SDK's transactional calls have to agree on
	{dir: "scheduler/graph", pure: true},
	// 2 choice
	{dir: "placement", imports: []string{"regions", "fairness"}, pure: true},
	{dir: "placement/preempt", imports: []string{"placement"}, pure: true},
	// 3 core
	{dir: "scheduler", imports: []string{"regions", "fairness", "placement", "scheduler/graph", "internal/txsql"}, pure: true},
	// 4 hands; the store never sees the engine: the engine says in small interfaces what it needs, and the two meet in cmd/errand
	{dir: "scheduler/engine", imports: []string{"scheduler", "placement", "regions", "fairness"}},
	{dir: "internal/store", imports: []string{"scheduler", "scheduler/graph", "internal/txsql"}},
	{dir: "fairness/tokenbucket", imports: []string{"fairness"}},
	{dir: "internal/telemetry", imports: []string{"scheduler", "scheduler/engine", "internal/store", "fairness/tokenbucket"}}, // it observes all
	{dir: "internal/hints", imports: []string{"scheduler", "scheduler/engine"}},
	{dir: "internal/devcluster"},
	{dir: "internal/sandbox"},
	// outside: the API and the Go SDK at the root of the module
	{dir: "proto/errand/v1"},
	{dir: "proto/errand/v1/errandv1connect", imports: []string{"proto/errand/v1"}},
	{dir: "proto/errand/peer/v1", imports: []string{"proto/errand/v1"}},
	{dir: "proto/errand/peer/v1/peerv1connect", imports: []string{"proto/errand/peer/v1"}},
	{dir: ".", imports: []string{"proto/errand/v1/...", "internal/txsql"}},
	// 5 edge
	{dir: "internal/api", imports: []string{
		"regions",
		"scheduler", "scheduler/engine", "scheduler/graph", "placement", "fairness", "fairness/tokenbucket", "internal/store", "proto/errand/...",
	}},
	// 6 roof
	{dir: "cmd/errand", imports: []string{
		".", "regions", "scheduler", "scheduler/engine", "internal/api", "internal/store", "internal/telemetry", "internal/hints",
		"internal/devcluster", "internal/sandbox", "fairness/tokenbucket", "proto/errand/...",
	}},
	// outside: strangers, who can do what every user can; the second starts servers too
	{dir: "cmd/errand-demo", imports: []string{"."}},
	// (the algorithm of placement is what loadtest placement measures: 10,000 real workers would measure the machine)
	{dir: "loadtest", imports: []string{".", "placement", "proto/errand/v1/...", "internal/devcluster"}},
	// tests: imported by tests only, hence by nobody above
	{dir: "scheduler/schedulertest", imports: []string{"scheduler", "scheduler/engine", "scheduler/graph", "placement", "regions", "fairness"}},
	{dir: "internal/testdb", imports: []string{"internal/devcluster"}},
	{dir: "internal/faultproxy"},
	{dir: "internal/floorplan"},
}

// topFolders may stand at the top of the tree, beside files.
var topFolders = []string{"cmd", "deploy", "docs", "fairness", "internal", "loadtest", "placement", "proto", "regions", "scheduler"}

// madeFolders hold no source of this module.
var madeFolders = []string{"bin", "demo-out", "node_modules", "testdata"}

func checkImports(s source, f floor) []string {
	var broken []string
	for _, spec := range s.file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has taken it for a path
		}
		inside, ours := cutModule(imported)
		switch {
		case ours && !f.mayImport(inside):
			broken = append(broken, fmt.Sprintf("%s imports %s: imports go down the floors only, and %s may import %s", s.at(spec), imported, f.dir, f.list()))
		case f.pure && !ours && strings.Contains(imported, "."):
			broken = append(broken, fmt.Sprintf("%s imports %s: a pure package stands on the standard library, so that its decisions are all its own", s.at(spec), imported))
		case f.pure && impure(imported):
			broken = append(broken, fmt.Sprintf("%s imports %s: a pure package has no clock, log, driver, goroutine or chance of its own: they are arguments", s.at(spec), imported))
		}
	}
	return broken
}

// cutModule turns the import path of a package of this module into its folder.
func cutModule(imported string) (dir string, ours bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

func (f floor) mayImport(dir string) bool {
	return slices.ContainsFunc(f.imports, func(may string) bool {
		top, deep := strings.CutSuffix(may, "/...")
		return dir == top || deep && strings.HasPrefix(dir, top+"/")
	})
}

func (f floor) list() string {
	if len(f.imports) == 0 {
		return "nothing of this module"
	}
	return strings.Join(f.imports, ", ")
}
