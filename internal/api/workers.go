package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	peerv1 "github.com/errandhq/errand/proto/errand/peer/v1"
	errandv1 "github.com/errandhq/errand/proto/errand/v1"
	"github.com/errandhq/errand/scheduler"
	"github.com/errandhq/errand/scheduler/engine"
)

// Bounds of what operators ask of workers.
const (
	workersPeersMax   = 64              // instances that are asked
	workersPeerAnswer = 1 * time.Second // the longest that one is waited for
	workersBytesMax   = 2 << 20         // of an instance's page, beside its first worker
)

// ListWorkers lists the workers of the region by identity. An instance that does not answer is counted as silent.
func (s *adminService) ListWorkers(ctx context.Context, req *errandv1.ListWorkersRequest) (*errandv1.ListWorkersResponse, error) {
	limit, pages := pageSize(req.GetPageSize()), newPager("workers", s.region, nil)
	after, err := pages.cursor(req.GetPageToken())
	if err != nil {
		return nil, err
	}
	if len(after) > len(scheduler.WorkerID{}) {
		return nil, invalid("page_token", "is not of this list")
	}
	here, err := workersPage(ctx, s.workers, after, limit)
	if err != nil {
		return nil, err
	}
	resp, answers := &errandv1.ListWorkersResponse{}, []*peerv1.WorkersResponse{here}
	told := askOthers(ctx, s.scheduler, s.others, workersPeerAnswer, func(ctx context.Context, peer scheduler.Session) (*peerv1.WorkersResponse, error) {
		return s.others.Workers(ctx, peer, &peerv1.WorkersRequest{After: after, Limit: int32(limit)})
	})
	for _, one := range told {
		if one == nil {
			resp.InstancesSilent++
			continue
		}
		answers = append(answers, one)
	}
	var more bool
	if resp.Workers, more = joinWorkers(answers, limit); more {
		last, _ := workerNamed(resp.Workers[len(resp.Workers)-1].GetWorker()) // joinWorkers leaves out what it does not parse
		resp.NextPageToken = pages.token(last[:])
	}
	return resp, nil
}

// askOthers asks the region's other instances at once, and returns nil for each that does not answer in time.
func askOthers[T any](
	ctx context.Context, here Scheduler, reach Others, wait time.Duration, ask func(ctx context.Context, peer scheduler.Session) (*T, error),
) []*T {
	others := here.Status().Others
	told := make([]*T, len(others))
	if reach == nil {
		return told
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var asked sync.WaitGroup
	for i := range others[:min(len(others), workersPeersMax)] {
		asked.Go(func() {
			if answer, err := ask(ctx, others[i]); err == nil { // whoever does not answer is counted
				told[i] = answer
			}
		})
	}
	asked.Wait()
	return told
}

// joinWorkers puts the pages of instances together, to one of at most limit workers. What follows the end of a page that has been cut is
// left for the next one.
func joinWorkers(pages []*peerv1.WorkersResponse, limit int) (joined []*errandv1.Worker, more bool) {
	var all []*errandv1.Worker
	end := "" // of the shortest page that was cut
	for _, page := range pages {
		for _, w := range page.GetWorkers() {
			if _, known := workerNamed(w.GetWorker()); known {
				all = append(all, w)
			}
		}
		if n := len(page.GetWorkers()); page.GetMore() && n > 0 {
			if last := page.GetWorkers()[n-1].GetWorker(); end == "" || last < end {
				end = last
			}
		}
	}
	slices.SortFunc(all, func(a, b *errandv1.Worker) int { // the one that is connected, then the one that was heard last
		return cmp.Or(cmp.Compare(a.GetWorker(), b.GetWorker()), -cmp.Compare(ordinal(a.GetConnected()), ordinal(b.GetConnected())),
			cmp.Compare(a.GetSilent().AsDuration(), b.GetSilent().AsDuration()))
	})
	all = slices.CompactFunc(all, func(a, b *errandv1.Worker) bool { return a.GetWorker() == b.GetWorker() })
	if end != "" {
		all = slices.DeleteFunc(all, func(w *errandv1.Worker) bool { return w.GetWorker() > end })
	}
	if len(all) > limit {
		return all[:limit], true
	}
	return all, end != "" && len(all) > 0
}

func ordinal(b bool) int {
	if b {
		return 1
	}
	return 0
}

// workersPage is a page of one instance's workers.
func workersPage(ctx context.Context, workers Workers, after []byte, limit int) (*peerv1.WorkersResponse, error) {
	list, err := workers.Workers(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b engine.WorkerInfo) int { return a.Worker.ID.Compare(b.Worker.ID) })
	page, size := &peerv1.WorkersResponse{}, 0
	for i := range list {
		id := list[i].Worker.ID
		if len(after) > 0 && bytes.Compare(id[:], after) <= 0 {
			continue
		}
		m := workerMessage(&list[i])
		if size += proto.Size(m); len(page.Workers) == limit || (size > workersBytesMax && len(page.Workers) > 0) {
			page.More = true
			break
		}
		page.Workers = append(page.Workers, m)
	}
	return page, nil
}

func workerMessage(w *engine.WorkerInfo) *errandv1.Worker {
	m := &errandv1.Worker{
		Worker: w.Worker.ID.String(), Name: w.Worker.Name, Tenant: w.Worker.Tenant, Version: w.Version, Zone: w.Worker.Zone, Labels: w.Worker.Labels,
		Draining: w.Draining, Cordoned: w.Cordoned, Connected: w.Connected, Silent: durationpb.New(w.Silent), Running: int32(w.Running),
	}
	for _, k := range w.Kinds() {
		m.Kinds = append(m.Kinds, &errandv1.Worker_KindCapacity{Kind: k.Kind, Slots: int32(k.Slots)})
	}
	if c := w.Worker.Capacity; c != nil {
		m.Capacity = &errandv1.Requirements{CpuMilli: int32(c.CPUMilli), MemoryMib: int32(c.MemoryMiB), Gpus: int32(c.GPUs), Slots: int32(c.Slots)}
	}
	return m
}

// workerNamed reads a worker instance as it is printed.
func workerNamed(name string) (id scheduler.WorkerID, ok bool) {
	raw, err := hex.DecodeString(strings.ReplaceAll(name, "-", ""))
	if err != nil || len(raw) != len(id) {
		return id, false
	}
	id = scheduler.WorkerID(raw)
	return id, strings.EqualFold(id.String(), name)
}

// DrainWorker gives a worker no more work, for good.
func (s *adminService) DrainWorker(ctx context.Context, req *errandv1.DrainWorkerRequest) (*errandv1.DrainWorkerResponse, error) {
	_, err := s.mark(ctx, req.GetWorker(), &peerv1.MarkWorkerRequest{Drain: true})
	return &errandv1.DrainWorkerResponse{}, err
}

// CordonWorker gives a worker no more work for now.
func (s *adminService) CordonWorker(ctx context.Context, req *errandv1.CordonWorkerRequest) (*errandv1.CordonWorkerResponse, error) {
	w, err := s.mark(ctx, req.GetWorker(), &peerv1.MarkWorkerRequest{Cordon: proto.Bool(true)})
	return &errandv1.CordonWorkerResponse{Worker: w}, err
}

// UncordonWorker gives it work again.
func (s *adminService) UncordonWorker(ctx context.Context, req *errandv1.UncordonWorkerRequest) (*errandv1.UncordonWorkerResponse, error) {
	w, err := s.mark(ctx, req.GetWorker(), &peerv1.MarkWorkerRequest{Cordon: proto.Bool(false)})
	return &errandv1.UncordonWorkerResponse{Worker: w}, err
}

// LabelWorker lays labels over those of a worker.
func (s *adminService) LabelWorker(ctx context.Context, req *errandv1.LabelWorkerRequest) (*errandv1.LabelWorkerResponse, error) {
	for i, key := range req.GetRemove() {
		if _, both := req.GetSet()[key]; both {
			return nil, invalid("remove["+strconv.Itoa(i)+"]", "is in set too")
		}
	}
	w, err := s.mark(ctx, req.GetWorker(), &peerv1.MarkWorkerRequest{Labels: req})
	return &errandv1.LabelWorkerResponse{Worker: w}, err
}

// mark does what an operator wants of a worker, here or at the instance that has it.
func (s *adminService) mark(ctx context.Context, name string, req *peerv1.MarkWorkerRequest) (*errandv1.Worker, error) {
	id, ok := workerNamed(name)
	if !ok {
		return nil, outside(engine.ErrNoWorker)
	}
	req.Worker = id[:]
	here, err := markHere(ctx, s.workers, req)
	if err != nil {
		return nil, err
	}
	if here.GetWorker() != nil {
		return marked(here)
	}
	gone, silent := here.GetGone(), false
	for _, one := range askOthers(ctx, s.scheduler, s.others, workersPeerAnswer, func(ctx context.Context, peer scheduler.Session) (*peerv1.MarkWorkerResponse, error) {
		return s.others.MarkWorker(ctx, peer, req)
	}) {
		if one.GetWorker() != nil {
			return marked(one)
		}
		gone, silent = gone || one.GetGone(), silent || one == nil
	}
	switch {
	case gone:
		return nil, outside(engine.ErrWorkerGone)
	case silent:
		return nil, outside(errPeersSilent)
	default:
		return nil, outside(engine.ErrNoWorker)
	}
}

func marked(answer *peerv1.MarkWorkerResponse) (*errandv1.Worker, error) {
	if answer.GetFull() {
		return nil, invalid("set", "no more than "+strconv.Itoa(engine.MarkedLabelsMax)+" labels can be laid over a worker, and as many taken away")
	}
	return answer.GetWorker(), nil
}

func markHere(ctx context.Context, workers Workers, req *peerv1.MarkWorkerRequest) (*peerv1.MarkWorkerResponse, error) {
	info, err := workers.MarkWorker(ctx, scheduler.WorkerID(req.GetWorker()), engine.MarkChange{
		Cordon: req.Cordon, Drain: req.GetDrain(), Set: req.GetLabels().GetSet(), Remove: req.GetLabels().GetRemove(), //nolint:protogetter // nil is told from false
	})
	switch {
	case errors.Is(err, engine.ErrNoWorker):
		return &peerv1.MarkWorkerResponse{}, nil
	case errors.Is(err, engine.ErrWorkerGone):
		return &peerv1.MarkWorkerResponse{Gone: true}, nil
	case errors.Is(err, engine.ErrMarksFull):
		return &peerv1.MarkWorkerResponse{Worker: workerMessage(&info), Full: true}, nil
	case err != nil:
		return nil, err
	default:
		return &peerv1.MarkWorkerResponse{Worker: workerMessage(&info)}, nil
	}
}

func (s *peerService) Workers(ctx context.Context, req *peerv1.WorkersRequest) (*peerv1.WorkersResponse, error) {
	return workersPage(ctx, s.workers, req.GetAfter(), int(req.GetLimit()))
}

func (s *peerService) MarkWorker(ctx context.Context, req *peerv1.MarkWorkerRequest) (*peerv1.MarkWorkerResponse, error) {
	return markHere(ctx, s.workers, req)
}

// Workers asks a peer for a page of its workers.
func (p *Peers) Workers(ctx context.Context, peer scheduler.Session, req *peerv1.WorkersRequest) (*peerv1.WorkersResponse, error) {
	c, err := p.at(peer)
	if err != nil {
		return nil, err
	}
	return c.Workers(ctx, req)
}

// MarkWorker has a peer do what an operator wants of one of its workers.
func (p *Peers) MarkWorker(ctx context.Context, peer scheduler.Session, req *peerv1.MarkWorkerRequest) (*peerv1.MarkWorkerResponse, error) {
	c, err := p.at(peer)
	if err != nil {
		return nil, err
	}
	return c.MarkWorker(ctx, req)
}
