package main

import (
	"strconv"

	"github.com/errandhq/errand"
)

// submitted shows that a task is stored, and what puts it at risk.
func (c *submitCmd) submitted(got *errand.Submitted) error {
	header, row := []string{"TASK", "STATE", "EXISTED"}, []string{got.ID, got.State.String(), strconv.FormatBool(got.Existed)}
	if got.AtRisk != "" {
		header, row = append(header, "AT RISK"), append(row, got.AtRisk)
	}
	return c.print(submittedView{
		TaskID: got.ID, State: got.State.String(), Existed: got.Existed, Demoted: got.Demoted, EstimatedStart: known(got.EstimatedStart), AtRisk: got.AtRisk,
	}, header, [][]string{row})
}
