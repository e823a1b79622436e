package scheduler

import (
	"maps"
	"slices"
)

// This file holds attempts that have moved to another instance with their worker. They hold their slots of caps here until their rows
// run no more: whoever took them over has them beyond its own part, so the slots that they leave must not be used twice.

// ghost is an attempt that runs at another instance.
type ghost struct {
	token  Token
	tenant string
	kind   string
	limits []LimitKey
	gates  []*gate
}

// haunt keeps the slots of an attempt that goes on elsewhere; it is forgotten in every other way.
func (c *Core) haunt(a *attempt) {
	if len(a.gates) == 0 {
		return
	}
	g := &ghost{token: a.Token, tenant: a.Tenant, kind: a.Kind, limits: a.limits, gates: a.gates}
	for _, one := range g.gates {
		one.used++
	}
	if old := c.ghosts[a.ID]; old != nil {
		c.gates.release(old.gates)
	}
	c.ghosts[a.ID] = g
}

// Ghosts returns attempts whose rows may run at another instance, at most limit, by ID. What became of them is told by [Core.Step]
// with [Vanished].
func (c *Core) Ghosts(limit int) []Token {
	ids := slices.SortedFunc(maps.Keys(c.ghosts), ID.Compare)
	tokens := make([]Token, 0, min(len(ids), limit))
	for _, id := range ids[:min(len(ids), limit)] {
		tokens = append(tokens, c.ghosts[id].token)
	}
	return tokens
}

// vanished frees the slots of attempts that run no more.
func (c *Core) vanished(tokens []Token) {
	for _, t := range tokens {
		if g := c.ghosts[t.ID]; g != nil && g.token == t {
			delete(c.ghosts, t.ID)
			c.gates.release(g.gates)
		}
	}
}
