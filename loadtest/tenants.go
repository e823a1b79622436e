package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// makeTenant creates a tenant and returns a key of it.
func (c *cluster) makeTenant(ctx context.Context, name string, weight float64) (string, error) {
	env := []string{"ERRAND_KEY=" + c.admin, "ERRAND_URL=" + c.urls[0]}
	if _, err := c.errand(ctx, env, "tenant", "create", name, "--weight", strconv.FormatFloat(weight, 'g', -1, 64)); err != nil {
		return "", err
	}
	return c.secret(ctx, c.admin, "tenant", "--tenant", name)
}

// poolKey returns a key for workers that serve these kinds for everybody.
func (c *cluster) poolKey(ctx context.Context, kinds []string) (string, error) {
	return c.secret(ctx, c.admin, "pool", "--kinds", strings.Join(kinds, ","))
}

// kindNames are work-1, work-2 ...
func kindNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("work-%d", i+1)
	}
	return names
}
