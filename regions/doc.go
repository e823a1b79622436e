// Package regions answers, as pure functions, who serves what: which scheduler instance of a region owns which of its lanes,
// and later which region adopts another's lanes, what may be spilled where and how quotas are shared.
//
// Nothing here keeps state or knows a clock. Every instance computes the same answer from the same list of live sessions;
// that two of them may hold different lists for a moment is harmless, since every claim is guarded by the store.
package regions
