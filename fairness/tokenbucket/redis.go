package tokenbucket

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/errandhq/errand/fairness"
)

// admitSource is the script; its head says what it expects, answers and keeps.
//
//go:embed admit.lua
var admitSource string

var admitScript = redis.NewScript(admitSource)

// answerLen is how many values the script answers with.
const answerLen = 6

// errAnswer says that something else than the script has answered.
var errAnswer = errors.New("not an answer of the admission script")

// connect prepares a client whose every step ends within limit, and that does not try again by itself: the twin answers instead.
func connect(address string, limit time.Duration) (redis.UniversalClient, error) {
	quiet := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled} // one round trip less per connection
	if isCluster(address) {
		opts, err := redis.ParseClusterURL(address)
		if err != nil {
			return nil, fmt.Errorf("the URL of the Redis Cluster: %w", err)
		}
		opts.ContextTimeoutEnabled = true
		opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout, opts.PoolTimeout = limit, limit, limit, limit
		opts.MaxRetries, opts.DialerRetries, opts.MaintNotificationsConfig = -1, 1, quiet
		return redis.NewClusterClient(opts), nil
	}
	opts, err := redis.ParseURL(address)
	if err != nil {
		return nil, fmt.Errorf("the URL of Redis: %w", err)
	}
	opts.ContextTimeoutEnabled = true
	opts.DialTimeout, opts.ReadTimeout, opts.WriteTimeout, opts.PoolTimeout = limit, limit, limit, limit
	opts.MaxRetries, opts.DialerRetries, opts.MaintNotificationsConfig = -1, 1, quiet
	return redis.NewClient(opts), nil
}

// isCluster tells whether a URL names more than one server, which go-redis takes for those of one cluster.
func isCluster(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Query().Has("addr")
}

// key is where a tenant's buckets are. The braces are the hash tag by which a cluster places the key.
func key(region, tenant string) string { return "errand:{" + region + "/" + tenant + "}:bucket" }

// call is one ask on its way to Redis.
type call struct {
	at   int // its place among the asks
	ask  Ask
	owed pair[float64]

	cmd  *redis.Cmd
	err  error
	got  Answer
	left pair[float64] // tokens
}

func (c *call) args() []any {
	l := c.ask.Policy.limits()
	return []any{
		rate(l.all), l.all.Burst, rate(l.urgent), l.urgent.Burst,
		c.ask.Tasks, c.ask.Urgent, c.owed.all, c.owed.urgent,
	}
}

// rate is a limit's rate as the script knows it: 0 for no limit.
func rate(l fairness.Limit) float64 {
	if l.Unlimited() {
		return 0
	}
	return l.Rate
}

// roundTrip runs the script for many tenants at once. Each call gets its own answer or error.
func (b *Buckets) roundTrip(ctx context.Context, calls []*call) {
	b.send(ctx, calls, admitScript.EvalSha)
	var unknown []*call
	for _, c := range calls {
		if redis.HasErrorPrefix(c.err, "NOSCRIPT") { // Redis was started anew, or its scripts were flushed
			unknown = append(unknown, c)
		}
	}
	if len(unknown) > 0 {
		b.send(ctx, unknown, admitScript.Eval)
	}
}

// send makes one round trip with the script's digest or its text.
func (b *Buckets) send(ctx context.Context, calls []*call, run func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) {
	pipe := b.client.Pipeline()
	for _, c := range calls {
		c.cmd = run(ctx, pipe, []string{key(b.region, c.ask.Tenant)}, c.args()...)
	}
	_, _ = pipe.Exec(ctx) // every command has its own error
	for _, c := range calls {
		c.err = c.read()
	}
}

// read takes the script's answer apart.
func (c *call) read() error {
	values, err := c.cmd.Slice()
	if err != nil {
		return err
	}
	if len(values) != answerLen {
		return errAnswer
	}
	var whole [4]int64
	for i := range whole {
		n, is := values[i].(int64)
		if !is {
			return errAnswer
		}
		whole[i] = n
	}
	if c.left.all, err = tokens(values[4]); err != nil {
		return err
	}
	if c.left.urgent, err = tokens(values[5]); err != nil {
		return err
	}
	c.got = c.ask.answer(
		pair[int]{all: int(whole[0]), urgent: int(whole[1])},
		pair[time.Duration]{all: time.Duration(whole[2]) * time.Millisecond, urgent: time.Duration(whole[3]) * time.Millisecond},
	)
	return nil
}

func tokens(value any) (float64, error) {
	text, is := value.(string)
	if !is {
		return 0, errAnswer
	}
	if text == "" { // no limit
		return 0, nil
	}
	return strconv.ParseFloat(text, 64)
}

// ofKey tells whether an error is about one tenant's key and says nothing about Redis.
func ofKey(err error) bool { return strings.Contains(err.Error(), "WRONGTYPE") }
