package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
)

// Bounds of scraping.
const (
	scrapesMax    = 4 // at once; another one is refused
	scrapeTimeout = 10 * time.Second
	profileMax    = 2 * time.Minute // of recording
)

// MetricsHandler answers scrapes in the formats of Prometheus and OpenMetrics. It does not authenticate: serve it where only
// those who operate Errand can reach it.
func (t *Telemetry) MetricsHandler() http.Handler {
	return promhttp.HandlerFor(t.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: scrapesMax, Timeout: scrapeTimeout, EnableOpenMetrics: true,
	})
}

// MetricsAddr is where /metrics is served, empty for nowhere.
func (t *Telemetry) MetricsAddr() string {
	if t.listener == nil {
		return ""
	}
	return t.listener.Addr().String()
}

// serve answers scrapes, and with profiles those who want to know where the time goes, on an address of their own.
func (t *Telemetry) serve(ctx context.Context, addr string, profiles bool) error {
	if addr == "" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen for scrapes on %s: %w", addr, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", t.MetricsHandler())
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound) // the command line has the store's password
	}
	server := &http.Server{Handler: mux, ReadTimeout: scrapeTimeout, WriteTimeout: profileMax, IdleTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			otel.Handle(fmt.Errorf("serve metrics on %s: %w", addr, err))
		}
	}()
	t.listener = listener
	t.ends = append(t.ends, func(context.Context) error {
		err := server.Close() // a scrape that is cut off comes again
		<-ended
		return err
	})
	return nil
}
