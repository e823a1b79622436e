// Package floorplan holds the law of the house: which package may import which, what pure packages must not touch, and what
// files and names look like. docs/architecture.md has the drawing.
//
// Check reads the tree by itself. (A test that asks the go command instead would be answered from the test cache when somebody
// else's files change.) What it returns are sentences that say what breaks the law and why the law is there. A new package is given
// its place in floors.go before it compiles here; a law that is wrong is changed there too, with its reason.
package floorplan

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// FileLinesMax is the longest a hand-written file may be: beyond it, it holds more than one idea.
const FileLinesMax = 600

// source is one hand-written Go file.
type source struct {
	name  string // path from the root of the tree
	text  string
	file  *ast.File
	files *token.FileSet
}

func (s source) dir() string { return path.Dir(s.name) }

func (s source) isTest() bool { return strings.HasSuffix(s.name, "_test.go") }

// at says where in the file something stands.
func (s source) at(n ast.Node) string { return s.files.Position(n.Pos()).String() }

// Check reads a tree and returns what breaks the law, each with its reason.
func Check(tree fs.FS) ([]string, error) {
	var broken []string
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if outside(tree, name) {
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

// outside tells whether a folder is none of the house's business: hidden, made by a build, test data, or a module of its own.
func outside(tree fs.FS, dir string) bool {
	if dir == "." {
		return false
	}
	if base := path.Base(dir); strings.HasPrefix(base, ".") || slices.Contains(madeFolders, base) {
		return true
	}
	_, err := fs.Stat(tree, path.Join(dir, "go.mod"))
	return err == nil
}

func checkFolder(dir string) []string {
	var broken []string
	if dir != "." && !strings.Contains(dir, "/") && !slices.Contains(topFolders, dir) {
		broken = append(broken, fmt.Sprintf("%s: only %s stand at the top of the tree: a new folder belongs into one of them", dir, strings.Join(topFolders, ", ")))
	}
	return append(broken, checkName(dir, path.Base(dir))...)
}

func checkFile(tree fs.FS, name string) ([]string, error) {
	text, err := fs.ReadFile(tree, name)
	if err != nil {
		return nil, err
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	s := source{name: name, text: string(text), file: file, files: files}
	broken := checkName(name, strings.TrimSuffix(path.Base(name), ".go"))
	broken = append(broken, checkLength(s)...)
	if s.isTest() {
		return broken, nil // tests may look anywhere
	}
	broken = append(broken, checkWords(s)...)
	at := slices.IndexFunc(floors, func(f floor) bool { return f.dir == s.dir() })
	if at < 0 {
		return append(broken, fmt.Sprintf("%s: its package stands on no floor: give it a place in internal/floorplan/floors.go", name)), nil
	}
	broken = append(broken, checkImports(s, floors[at])...)
	if floors[at].pure {
		broken = append(broken, checkPure(s)...)
	}
	return broken, nil
}

func checkLength(s source) []string {
	lines := strings.Count(s.text, "\n")
	if lines <= FileLinesMax {
		return nil
	}
	return []string{fmt.Sprintf("%s: %d lines: a file holds one idea, in at most %d lines", s.name, lines, FileLinesMax)}
}
