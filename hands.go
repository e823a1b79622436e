package errand

// hands are goroutines that run handlers, each at once. One that is free takes the next handler: a fresh goroutine would have to
// grow its stack each time, which costs more than everything else about a short handler.
type hands struct {
	next chan func()
	free chan struct{} // a place for each that may wait for more
	over chan struct{}
}

// handsFreeMax is how many goroutines wait for more; others end.
const handsFreeMax = 256

func newHands() hands {
	return hands{next: make(chan func()), free: make(chan struct{}, handsFreeMax), over: make(chan struct{})}
}

// run runs f now, in a goroutine of its own for as long as it takes.
func (h *hands) run(f func()) {
	select {
	case h.next <- f:
	default:
		go h.work(f)
	}
}

func (h *hands) work(f func()) {
	for {
		f()
		select {
		case h.free <- struct{}{}:
		default:
			return
		}
		select {
		case f = <-h.next:
			<-h.free
		case <-h.over:
			return
		}
	}
}

// rest lets those that wait end. What runs still goes on, and ends after that.
func (h *hands) rest() { close(h.over) }
