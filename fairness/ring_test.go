package fairness

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// turns lists the ring from the tenant whose turn it is.
func turns(r *Ring) []string {
	var tenants []string
	for range r.Len() {
		tenant, _ := r.Peek()
		tenants = append(tenants, tenant)
		r.Pass(tenant)
	}
	return tenants
}

func TestEmptyRing(t *testing.T) {
	var r Ring
	if tenant, some := r.Peek(); some || tenant != "" {
		t.Errorf("an empty ring names %q", tenant)
	}
	r.Pass("nobody")
	r.Remove("nobody")
	if r.Len() != 0 {
		t.Errorf("%d tenants", r.Len())
	}
}

// A tenant that leaves during its turn has had it: the next one is not passed over.
func TestLeavingEndsTheTurn(t *testing.T) {
	var r Ring
	for _, tenant := range []string{"a", "b", "c"} {
		r.Add(tenant)
	}
	r.Remove("a")
	r.Pass("a")
	if got := turns(&r); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("turns: %v", got)
	}
}

// The ring serves like a plain list whose first tenant is served and goes to the end (P7, as far as turns go).
func TestRingAgreesWithAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r Ring
		var list []string
		draw := func(t *rapid.T) string { return rapid.StringMatching("[a-e]").Draw(t, "tenant") }
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				tenant := draw(t)
				r.Add(tenant)
				if !slices.Contains(list, tenant) {
					list = append(list, tenant)
				}
			},
			"remove": func(t *rapid.T) {
				tenant := draw(t)
				r.Remove(tenant)
				list = slices.DeleteFunc(list, func(s string) bool { return s == tenant })
			},
			"pass": func(t *rapid.T) {
				tenant := draw(t)
				r.Pass(tenant)
				if len(list) > 0 && list[0] == tenant {
					list = append(list[1:], tenant)
				}
			},
			"": func(t *rapid.T) {
				if got := turns(&r); !slices.Equal(got, list) {
					t.Fatalf("turns %v, want %v", got, list)
				}
			},
		})
	})
}
