package floorplan

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
)

// impureImports are packages of the standard library, with all below them, that pure packages do without.
var impureImports = []string{
	"context", "crypto/rand", "database", "log", "math/rand", "net", "os", "runtime", "sync", "syscall", "testing", "unsafe",
}

// clockCalls are the functions of package time that ask the clock or wait for it. Its types are values like any other.
var clockCalls = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

func impure(imported string) bool {
	return slices.ContainsFunc(impureImports, func(name string) bool {
		return imported == name || strings.HasPrefix(imported, name+"/")
	})
}

// checkPure looks for goroutines and for the clock, under whatever name package time is imported.
func checkPure(s source) []string {
	var broken []string
	clock := importedAs(s, "time")
	if clock == "." {
		broken = append(broken, fmt.Sprintf("%s imports time without its name, which hides calls of the clock", s.name))
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			broken = append(broken, fmt.Sprintf("%s starts a goroutine: a pure package is driven by its caller", s.at(n)))
		case *ast.SelectorExpr:
			if pkg, is := n.X.(*ast.Ident); is && pkg.Name == clock && slices.Contains(clockCalls, n.Sel.Name) {
				broken = append(broken, fmt.Sprintf("%s uses time.%s: in a pure package the time is an argument, so that a history can be played again", s.at(n), n.Sel.Name))
			}
		}
		return true
	})
	return broken
}

// importedAs is the name that a file gives to a package; empty when it does not import it.
func importedAs(s source, imported string) string {
	for _, spec := range s.file.Imports {
		if spec.Path.Value != strconv.Quote(imported) {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(imported)
	}
	return ""
}
