package errandv1_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// declaration is the start of something that must say what it is: a message, an enum, a service, a method, a oneof, a field or
// an enum's value. Options inside braces (deprecated = true, lte: 5) are neither.
var declaration = regexp.MustCompile(`^\s*(` +
	`(message|enum|service|rpc|oneof)\s+\w+` + // by their word
	`|(optional\s+|repeated\s+)?(map<[\w\s,]+>|[.\w]+)\s+\w+\s*=\s*\d+\s*[;\[]` + // a field: type, name, number
	`|[A-Z][A-Z0-9_]*\s*=\s*\d+\s*[;\[]` + // a value: NAME, number
	`)`)

// Every declaration has a comment of its own right above it: unit, default and limit are read there, and nowhere else.
func TestEveryDeclarationHasAComment(t *testing.T) {
	found := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".proto" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		above := ""
		for i, line := range strings.Split(string(text), "\n") {
			if declaration.MatchString(line) {
				found++
				if !strings.HasPrefix(strings.TrimSpace(above), "//") {
					t.Errorf("%s:%d: no comment above %q", path, i+1, strings.TrimSpace(line))
				}
			}
			above = line
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := countDeclarations(); found != want {
		t.Errorf("the text has %d declarations, the descriptors %d: this test does not see all of them", found, want)
	}
}

// countDeclarations counts the same in the generated descriptors, so that a line which the pattern misses is noticed.
func countDeclarations() int {
	n := 0
	for file := range filesOfErrand() {
		n += countEnums(file.Enums()) + countMessages(file.Messages())
		for i := range file.Services().Len() {
			n += 1 + file.Services().Get(i).Methods().Len()
		}
	}
	return n
}

func countEnums(enums protoreflect.EnumDescriptors) int {
	n := 0
	for i := range enums.Len() {
		n += 1 + enums.Get(i).Values().Len()
	}
	return n
}

func countMessages(messages protoreflect.MessageDescriptors) int {
	n := 0
	for i := range messages.Len() {
		m := messages.Get(i)
		if m.IsMapEntry() {
			continue
		}
		n += 1 + m.Fields().Len() + countEnums(m.Enums()) + countMessages(m.Messages())
		for j := range m.Oneofs().Len() {
			if !m.Oneofs().Get(j).IsSynthetic() {
				n++
			}
		}
	}
	return n
}
