package main

import (
	"fmt"
	"strings"

	"github.com/errandhq/errand"
)

// limitsOf reads named limits of a task as people write them: NAME, or NAME/KEY with whatever the key may contain.
func limitsOf(texts []string) ([]errand.Limit, error) {
	var limits []errand.Limit
	for _, text := range texts {
		name, key, keyed := strings.Cut(text, "/")
		if name == "" || (keyed && key == "") {
			return nil, fmt.Errorf("%q is not NAME or NAME/KEY", text)
		}
		limits = append(limits, errand.Limit{Name: name, Key: key})
	}
	return limits, nil
}

// limitTexts is the other way round.
func limitTexts(limits []errand.Limit) []string {
	texts := []string{}
	for _, l := range limits {
		if l.Key != "" {
			l.Name += "/" + l.Key
		}
		texts = append(texts, l.Name)
	}
	return texts
}
