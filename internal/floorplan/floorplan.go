// Package floorplan holds the law of the house: which package may import which, what pure packages must not touch, and what
// files and names look like. Its test reads the files itself, so that a cached result is never about yesterday's tree; the
// failure text is the reason. See docs/architecture.md for the drawing.
package floorplan

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// module is the path under which the packages of the tree are imported.
const module = "github.com/errandhq/errand"

// floor is a package and what it may import of this module. A package that stands in no floor is a violation itself: a new one
// gets its place here first.
type floor struct {
	dir     string
	imports []string
	pure    bool // no context, log, clock, goroutine, driver or randomness of its own
}

var floors = []floor{
	// 1 facts
	{dir: "regions", pure: true},
	{dir: "fairness", pure: true},
	{dir: "internal/txsql", pure: true},
	// 2 choice
	{dir: "placement", imports: []string{"regions", "fairness"}, pure: true},
	// 3 core
	{dir: "scheduler", imports: []string{"regions", "fairness", "placement", "internal/txsql"}, pure: true},
	// 4 hands
	{dir: "scheduler/engine", imports: []string{"scheduler", "placement", "regions", "fairness"}},
	{dir: "internal/store", imports: []string{"scheduler", "internal/txsql"}},
	{dir: "internal/telemetry", imports: []string{"scheduler", "scheduler/engine", "internal/store"}},
	{dir: "internal/hints", imports: []string{"scheduler", "scheduler/engine"}},
	{dir: "internal/devcluster"},
	// 5 edge
	{dir: "internal/api", imports: []string{"scheduler", "scheduler/engine", "placement", "internal/store", "proto"}},
	// 6 roof
	{dir: "cmd/errand", imports: []string{"", "scheduler", "scheduler/engine", "internal", "proto"}},
	// outside
	{dir: "", imports: []string{"proto", "internal/txsql"}},
	{dir: "loadtest", imports: []string{"", "proto", "internal/devcluster"}},
	{dir: "proto/errand/v1", imports: []string{"proto"}},
	{dir: "proto/errand/v1/errandv1connect", imports: []string{"proto"}},
	{dir: "proto/errand/peer/v1", imports: []string{"proto"}},
	{dir: "proto/errand/peer/v1/peerv1connect", imports: []string{"proto"}},
	// tests
	{dir: "scheduler/schedulertest", imports: []string{"scheduler", "scheduler/engine", "placement", "regions", "fairness"}},
	{dir: "internal/testdb", imports: []string{"internal/devcluster"}},
	{dir: "internal/faultproxy"},
	{dir: "internal/floorplan"},
}

// topLevel are the folders that may stand at the top of the tree; files may too.
var topLevel = []string{
	"regions", "scheduler", "placement", "fairness", "proto", "deploy", "loadtest", "cmd", "internal", "docs",
}

// impure are the imports that a pure package must not have.
var impure = []string{
	"context", "crypto/rand", "database/sql", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "os/exec", "sync",
	"sync/atomic", "syscall",
}

// clockCalls are the functions of package time that ask the clock or wait for it.
var clockCalls = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

// vague are package names that say nothing about what is inside.
var vague = []string{"util", "utils", "helper", "helpers", "common", "manager", "misc"}

// FileLinesMax is the longest a hand-written file may be: beyond it, it holds more than one idea.
const FileLinesMax = 600

// Check reads a tree and returns what breaks the law, each with its reason.
func Check(tree fs.FS) ([]string, error) {
	var broken []string
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if skipped(name) {
				return fs.SkipDir
			}
			broken = append(broken, checkFolder(name)...)
			return nil
		}
		if strings.HasSuffix(name, ".go") {
			found, err := checkFile(tree, name)
			broken = append(broken, found...)
			return err
		}
		return nil
	})
	return broken, err
}

func skipped(dir string) bool {
	base := path.Base(dir)
	return dir != "." && (strings.HasPrefix(base, ".") || base == "node_modules" || base == "testdata" || base == "bin" ||
		base == "demo-out" || dir == "loadtest/peers")
}

func checkFolder(dir string) []string {
	var broken []string
	if dir != "." && !strings.Contains(dir, "/") && !slices.Contains(topLevel, dir) {
		broken = append(broken, fmt.Sprintf("%s: only %s stand at the top of the tree: a new folder belongs into one of them", dir, strings.Join(topLevel, ", ")))
	}
	if slices.Contains(vague, path.Base(dir)) {
		broken = append(broken, fmt.Sprintf("%s: the name says nothing about what is inside", dir))
	}
	return broken
}

func checkFile(tree fs.FS, name string) ([]string, error) {
	source, err := fs.ReadFile(tree, name)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	var broken []string
	if lines := strings.Count(string(source), "\n"); lines > FileLinesMax {
		broken = append(broken, fmt.Sprintf("%s: %d lines: a file holds one idea, in at most %d lines", name, lines, FileLinesMax))
	}
	if strings.HasSuffix(name, "_test.go") {
		return broken, nil // tests may look anywhere
	}
	dir := path.Dir(name)
	if dir == "." {
		dir = ""
	}
	at := slices.IndexFunc(floors, func(f floor) bool { return f.dir == dir })
	if at < 0 {
		return append(broken, fmt.Sprintf("%s: its package stands on no floor: give it a place in internal/floorplan", name)), nil
	}
	f := floors[at]
	broken = append(broken, checkImports(f, name, file)...)
	if f.pure {
		broken = append(broken, checkPure(name, file, files)...)
	}
	return broken, nil
}

func checkImports(f floor, name string, file *ast.File) []string {
	var broken []string
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		inside, ours := strings.CutPrefix(imported, module)
		switch {
		case ours && !allowed(f, strings.TrimPrefix(inside, "/")):
			broken = append(broken, fmt.Sprintf("%s imports %s: imports go down the floors only, and %q may import %q", name, imported, f.dir, f.imports))
		case f.pure && slices.Contains(impure, imported):
			broken = append(broken, fmt.Sprintf("%s imports %s: a pure package has no clock, log, driver, goroutine or chance of its own: they are arguments", name, imported))
		}
	}
	return broken
}

// allowed tells whether a package may import another of this module: itself named, or inside a named folder other than the root.
func allowed(f floor, imported string) bool {
	return slices.ContainsFunc(f.imports, func(may string) bool {
		return imported == may || (may != "" && may != "scheduler" && strings.HasPrefix(imported, may+"/"))
	})
}

func checkPure(name string, file *ast.File, files *token.FileSet) []string {
	var broken []string
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			broken = append(broken, fmt.Sprintf("%s:%d starts a goroutine: a pure package is driven by its caller", name, files.Position(n.Pos()).Line))
		case *ast.SelectorExpr:
			if pkg, is := n.X.(*ast.Ident); is && pkg.Name == "time" && slices.Contains(clockCalls, n.Sel.Name) {
				broken = append(broken, fmt.Sprintf("%s:%d calls time.%s: in a pure package the time is an argument", name, files.Position(n.Pos()).Line, n.Sel.Name))
			}
		}
		return true
	})
	return broken
}
