// Package cron says when a schedule fires: it reads cron expressions, finds the occurrences of one in its time zone, and decides
// what a schedule whose state is known does now.
//
// An occurrence is an instant, a whole second. Parse turns an expression and a zone into a Schedule; Next and Prev walk its
// occurrences, Between, Latest and Count answer for a window, and Plan is the decision: which occurrences fire, which are skipped
// and why, when to look again. Nothing here keeps state or knows a clock; the only thing read from outside is the time zone
// database, by Parse. All work is bounded: by the calendar's cycle of 400 years, never by the length of an outage.
//
// # Expressions
//
// Five fields (minute, hour, day of month, month, day of week), or six with seconds first; or @hourly, @daily, @weekly, @monthly,
// @yearly; or @every DURATION. A field is a list of values, ranges (a-b), steps (*/n, a-b/n, a/n) and names (JAN, MON); ? is * in
// the fields of days. As in Vixie's cron a day matches when either field of days does, unless one of them begins with * (also */2):
// then both have to.
//
// # The clock of a zone jumps
//
// Fixed times, those whose hour is spelled out, fire once for each local date, at the first instant at which the zone's clock
// shows the time or a later one: what falls into a gap fires at its end, what the clock shows twice fires at the first. When the hour
// is * or has a step, and matches more than once a day, the schedule follows real time: it fires whenever the clock shows a time that
// matches. @every does not look at the clock: its occurrences are anchor + k x DURATION.
//
// # Why not a library
//
// github.com/robfig/cron/v3 v3.0.1, the one that others in Go build on, was tried. In Europe/Berlin its "0 2 * * *" fires twice on
// 2023-10-29; in New York "30 2 * * *" does not fire on 2025-03-09, nor "0 0 * * *" in Santiago on 2024-09-08; "0 0 31 2 *" is
// accepted and its next time is the year 1, as is that of "0 0 29 2 *" after 2096 (the search ends after five years); @every has no
// anchor; and there is no way back, which catching up after a long outage needs. tables_test.go has these cases.
package cron
