package devcluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// PostgresMin is the oldest major version that Errand's statements are made for.
const PostgresMin = 15

// checkInstalled refuses a server that is too old.
func (p *Postgres) checkInstalled(ctx context.Context) error {
	server, err := p.major(ctx)
	if err != nil {
		return err
	}
	if n, err := strconv.Atoi(server); err != nil || n < PostgresMin {
		return fmt.Errorf("%s is version %s: install PostgreSQL %d or newer and put its programs first on the PATH",
			filepath.Join(p.bin, "postgres"), server, PostgresMin)
	}
	return nil
}

// checkVersion compares the release that made the data with the installed one, and says what to do when they do not fit: a
// server reads only what its own major version has written.
func (p *Postgres) checkVersion(ctx context.Context) error {
	wayOut := fmt.Sprintf("or move %s away: the next start begins without what is in it", p.opts.Dir)
	file := filepath.Join(p.data(), "PG_VERSION")
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("%s is not a whole database: %w; restore it, %s", p.data(), err, wayOut)
	}
	data := strings.TrimSpace(string(raw))
	if _, err := strconv.ParseFloat(data, 64); err != nil {
		return fmt.Errorf("%s is damaged: it says %.20q instead of a version; restore it, %s", file, data, wayOut)
	}
	server, err := p.major(ctx)
	if err != nil {
		return err
	}
	if data != server {
		return fmt.Errorf("%s was made by PostgreSQL %s, and %s is version %s: install PostgreSQL %s and put its programs first on the PATH, %s",
			p.data(), data, filepath.Join(p.bin, "postgres"), server, data, wayOut)
	}
	return nil
}

// major is the major version of the installed server: "15".
func (p *Postgres) major(ctx context.Context) (string, error) {
	program := filepath.Join(p.bin, "postgres")
	out, err := exec.CommandContext(ctx, program, "--version").Output() // postgres (PostgreSQL) 15.20 (a distribution's remark)
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", program, err)
	}
	_, after, _ := strings.Cut(string(out), ") ")
	major := strings.TrimRight(after, "\n")
	if end := strings.IndexFunc(major, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		major = major[:end] // 15.20, 18beta1
	}
	return major, nil
}
