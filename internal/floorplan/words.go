package floorplan

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"unicode"
)

// vague are names of packages and files that say nothing about what is inside.
var vague = []string{"common", "helper", "helpers", "manager", "misc", "stuff", "util", "utils"}

// otherWords are words for which this project has one of its own, and that one.
var otherWords = map[string]string{
	"job":      "task",
	"jobs":     "tasks",
	"node":     "worker or instance",
	"nodes":    "workers or instances",
	"executor": "worker",
	"manager":  "what it does",
	"helper":   "what it does",
	"util":     "what it does",
	"utils":    "what it does",
	"common":   "what it is",
}

// checkName looks at the name of a folder or a file.
func checkName(where, name string) []string {
	name = strings.TrimSuffix(name, "_test")
	if !slices.Contains(vague, name) {
		return nil
	}
	return []string{fmt.Sprintf("%s: the name says nothing about what is inside", where)}
}

// checkWords looks at the names that a file declares at its top: one word per concept, everywhere.
func checkWords(s source) []string {
	var broken []string
	for _, name := range declared(s.file) {
		for _, word := range words(name.Name) {
			if ours, other := otherWords[word]; other {
				broken = append(broken, fmt.Sprintf("%s: %s says %q: one word per concept, and here it is %s", s.at(name), name.Name, word, ours))
			}
		}
	}
	return broken
}

// declared are the names of a file's types, fields, functions, methods, constants and variables.
func declared(file *ast.File) []*ast.Ident {
	var names []*ast.Ident
	for _, decl := range file.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			names = append(names, decl.Name)
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, spec.Name)
					names = append(names, members(spec.Type)...)
				case *ast.ValueSpec:
					names = append(names, spec.Names...)
				}
			}
		}
	}
	return names
}

// members are the names of a struct's fields or an interface's methods.
func members(t ast.Expr) []*ast.Ident {
	var list *ast.FieldList
	switch t := t.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return nil
	}
	var names []*ast.Ident
	for _, field := range list.List {
		names = append(names, field.Names...)
	}
	return names
}

// words splits a name like startedAt, ClaimBatchMax or HTTPKind into its words, in lower case.
func words(name string) []string {
	var all []string
	var word []rune
	runes := []rune(name)
	for i, r := range runes {
		begins := unicode.IsUpper(r) && i > 0 && (!unicode.IsUpper(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1]))
		if (begins || !unicode.IsLetter(r)) && len(word) > 0 {
			all = append(all, string(word))
			word = nil
		}
		if unicode.IsLetter(r) {
			word = append(word, unicode.ToLower(r))
		}
	}
	if len(word) > 0 {
		all = append(all, string(word))
	}
	return all
}
