package telemetry

import (
	"testing"
	"time"

	"github.com/errandhq/errand/fairness/tokenbucket"
)

func TestAdmissionIsShown(t *testing.T) {
	tel := begin(t, Config{})
	a, err := tel.Admission(func() tokenbucket.Status { return tokenbucket.Status{Open: true, ByRedis: 5, ByTwin: 3, Ahead: 9} })
	if err != nil {
		t.Fatal(err)
	}
	a.Admitted("over_rate", 4)
	a.Admitted("a tenant's name", 1)
	a.Asked(time.Millisecond)
	got := scrape(t, tel)
	for _, c := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{4, "errand_admissions_total", []string{"outcome", "over_rate"}},
		{0, "errand_admissions_total", []string{"outcome", "demoted"}},
		{1, "errand_admissions_total", []string{"outcome", "other"}},
		{1, "errand_admission_ask_seconds", nil},
		{1, "errand_admission_breaker_open", nil},
		{5, "errand_admission_answers_total", []string{"by", "redis"}},
		{9, "errand_admission_answers_total", []string{"by", "ahead"}},
		{3, "errand_admission_answers_total", []string{"by", "twin"}},
	} {
		if value := sample(t, got, c.name, c.labels...); value != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, value, c.want)
		}
	}
}
