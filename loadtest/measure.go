package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// meter takes the time, the CPU time of each process, and the write-ahead log between start and stop.
type meter struct {
	postgres  *pgx.Conn
	processes map[string]int // pid by name; 0 is this one
	families  map[string]int // the same, with all children
	began     time.Time
	cpu       map[string]time.Duration
	wal       int64
}

// clockTick is the unit of CPU times in /proc; Linux has told programs 100 a second since 2.6, whatever it uses inside.
const clockTick = time.Second / 100

func startMeter(ctx context.Context, c *cluster, processes map[string]int) (*meter, error) {
	conn, err := pgx.Connect(ctx, c.postgres.DSN("postgres"))
	if err != nil {
		return nil, err
	}
	m := &meter{postgres: conn, processes: processes, families: map[string]int{"postgres": c.postgres.Pid()}}
	if m.wal, err = m.walBytes(ctx); err != nil {
		return nil, err
	}
	m.cpu, m.began = m.cpuTimes(), time.Now()
	return m, nil
}

// stop ends the measurement at the given moment, for so many tasks. took is the time that counts, 0 for all of it.
func (m *meter) stop(ctx context.Context, tasks int, took time.Duration) (measured, error) {
	if took == 0 {
		took = time.Since(m.began)
	}
	now := m.cpuTimes()
	wal, err := m.walBytes(ctx)
	if err != nil {
		return measured{}, err
	}
	out := measured{
		PerS: float64(tasks) / took.Seconds(), Seconds: took.Seconds(), WAL: float64(wal-m.wal) / float64(tasks), CPU: map[string]float64{},
	}
	for name, cpu := range now {
		out.CPU[name] = float64((cpu - m.cpu[name]).Microseconds()) / float64(tasks)
	}
	return out, m.postgres.Close(ctx)
}

func (m *meter) walBytes(ctx context.Context) (int64, error) {
	var bytes int64
	err := m.postgres.QueryRow(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint`).Scan(&bytes)
	return bytes, err
}

func (m *meter) cpuTimes() map[string]time.Duration {
	out := map[string]time.Duration{}
	for name, pid := range m.processes {
		out[name] = cpuOf(pid, false)
	}
	for name, pid := range m.families {
		out[name] = cpuOf(pid, true)
		for _, child := range childrenOf(pid) {
			out[name] += cpuOf(child, false)
		}
	}
	return out
}

// cpuOf reads the CPU time of a process, with that of children that have ended where wanted. A process that is gone has used 0.
func cpuOf(pid int, ended bool) time.Duration {
	fields := procStat(pid)
	if len(fields) < 15 {
		return 0
	}
	// Fields of proc(5) from state, the third, on: utime, stime, cutime, cstime are 14 to 17.
	ticks := number(fields[11]) + number(fields[12])
	if ended {
		ticks += number(fields[13]) + number(fields[14])
	}
	return time.Duration(ticks) * clockTick
}

// procStat are the fields after the process's name, which may contain anything.
func procStat(pid int) []string {
	name := "self"
	if pid > 0 {
		name = strconv.Itoa(pid)
	}
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", name))
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return strings.Fields(rest)
}

func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64) // the kernel writes numbers
	return n
}

func childrenOf(pid int) []int {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var out []int
	for _, field := range strings.Fields(string(raw)) {
		out = append(out, int(number(field)))
	}
	return out
}

// machineFacts are what a reader needs to compare two runs.
func machineFacts(ctx context.Context, c *cluster) map[string]any {
	facts := map[string]any{"go": machine(), "cpu": firstValue("/proc/cpuinfo", "model name"), "memory": firstValue("/proc/meminfo", "MemTotal")}
	if raw, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		facts["kernel"] = strings.TrimSpace(string(raw))
	}
	if raw, err := os.ReadFile("/proc/loadavg"); err == nil {
		facts["load_at_end"] = strings.TrimSpace(string(raw))
	}
	conn, err := pgx.Connect(ctx, c.postgres.DSN("postgres"))
	if err != nil {
		return facts
	}
	defer func() { _ = conn.Close(ctx) }()
	settings := map[string]string{}
	for _, name := range []string{"server_version", "fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size"} {
		var value string
		if conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value) == nil {
			settings[name] = value
		}
	}
	facts["postgres"] = settings
	return facts
}

func firstValue(path, key string) string {
	raw, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
