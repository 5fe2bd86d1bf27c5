// The Go client as a peer: gobench NAMESERVER TOPIC COUNT GROUP prints one line of JSON. Processor time is counted from
// the first to the last message; first_at is the monotonic clock of the machine.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	rlog.SetLogLevel("error")
	ns, topic, group := os.Args[1], os.Args[2], os.Args[4]
	want, err := strconv.ParseInt(os.Args[3], 10, 64)
	if err != nil {
		panic(err)
	}
	var seen, first, cpuAtFirst int64
	done := make(chan struct{}, 1)
	c, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName(group),
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{ns})),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		panic(err)
	}
	err = c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "TagA"},
		func(_ context.Context, batch ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			if atomic.LoadInt64(&first) == 0 && atomic.CompareAndSwapInt64(&first, 0, monotonic()) {
				atomic.StoreInt64(&cpuAtFirst, processorTime())
			}
			if atomic.AddInt64(&seen, int64(len(batch))) >= want {
				select {
				case done <- struct{}{}:
				default:
				}
			}
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		panic(err)
	}
	if err := c.Start(); err != nil {
		panic(err)
	}
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
	}
	n, start := atomic.LoadInt64(&seen), atomic.LoadInt64(&first)
	s := float64(monotonic()-start) / 1e9
	cpu := float64(processorTime()-atomic.LoadInt64(&cpuAtFirst)) / 1e9
	fmt.Printf("{\"peer\":\"go\",\"mode\":\"concurrently\",\"complete\":%t,\"count\":%d,\"seconds\":%.3f,\"per_second\":%.0f,"+
		"\"first_at\":%.6f,\"cpu_us_per_message\":%.2f}\n",
		n >= want, n, s, float64(n)/s, float64(start)/1e9, cpu*1e6/float64(n))
}

// monotonic is CLOCK_MONOTONIC in nanoseconds: the clock that the parent process reads too.
func monotonic() int64 {
	var t syscall.Timespec
	if _, _, problem := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&t)), 0); problem != 0 {
		panic(problem)
	}
	return t.Nano()
}

// processorTime is what this process has used so far, in nanoseconds.
func processorTime() int64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		panic(err)
	}
	return r.Utime.Nano() + r.Stime.Nano()
}
