package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	errandv1 "github.com/errandhq/errand/proto/errand/v1"
)

// auditCmd proves P2 and P3.
type auditCmd struct {
	clientSettings
	outputSettings
}

// Run audits; it ends with 6 when something was found.
func (c *auditCmd) Run(ctx context.Context) error {
	admin, err := c.admin()
	if err != nil {
		return err
	}
	resp, err := admin.Audit(ctx, &errandv1.AuditRequest{})
	if err != nil {
		return rpcError(err)
	}
	v := auditViewOf(resp)
	var rows [][]string
	for _, b := range v.Balances {
		rows = append(rows, []string{
			b.Tenant, b.Tier, strconv.FormatInt(b.Accepted, 10), strconv.FormatInt(b.Ended, 10), strconv.FormatInt(b.Open, 10),
		})
	}
	if err := c.print(v, []string{"TENANT", "TIER", "ACCEPTED", "ENDED", "OPEN"}, rows); err != nil {
		return err
	}
	for _, f := range v.Findings {
		fmt.Fprintf(os.Stderr, "finding: %s: %d rows, for instance %s: %s\n", f.Reason, f.Rows, dash(f.ExampleTaskID), f.Message)
	}
	if !v.OK {
		return errQuiet
	}
	if c.Output != "json" {
		fmt.Println("\nall is well: accepted = ended + open, and every open task has a reason to be looked at again")
	}
	return nil
}
