package zeromq

import (
	"errors"
	"fmt"
)

const (
	// maxSubscriptions and maxPrefix bound the subscriptions of a peer. A minion or syndic has at
	// most two, of 40 bytes.
	maxSubscriptions = 64
	maxPrefix        = 256
)

var errSubscriptions = fmt.Errorf("more than %d subscriptions", maxSubscriptions)

// subscriber is a peer of a PUB.
type subscriber struct {
	*link
	shard *shard
	subs  []subscription
	mark  uint64 // the last message that matched
}

type subscription struct {
	prefix string
	at     int // index in the prefix's list of subscribers
}

// topics finds the subscribers of a topic by one look-up per length of a subscribed prefix.
type topics struct {
	lists   map[string][]*subscriber
	lengths [maxPrefix + 1]int // prefixes per length
	mark    uint64
}

// add subscribes s to prefix. As with libzmq, a second subscription to the same prefix has no
// effect.
func (t *topics) add(s *subscriber, prefix string) error {
	if len(prefix) > maxPrefix {
		return fmt.Errorf("a subscription of %d bytes, more than %d", len(prefix), maxPrefix)
	}
	for _, sub := range s.subs {
		if sub.prefix == prefix {
			return nil
		}
	}
	if len(s.subs) == maxSubscriptions {
		return errSubscriptions
	}
	list := t.lists[prefix]
	if len(list) == 0 {
		t.lengths[len(prefix)]++
	}
	t.lists[prefix] = append(list, s)
	s.subs = append(s.subs, subscription{prefix, len(list)})
	return nil
}

// remove ends the subscription of s to prefix, if any.
func (t *topics) remove(s *subscriber, prefix string) {
	for i, sub := range s.subs {
		if sub.prefix == prefix {
			t.unlist(sub)
			last := len(s.subs) - 1
			s.subs[i] = s.subs[last]
			s.subs = s.subs[:last]
			return
		}
	}
}

// clear ends all subscriptions of s.
func (t *topics) clear(s *subscriber) {
	for _, sub := range s.subs {
		t.unlist(sub)
	}
	s.subs = nil
}

// unlist removes the entry sub from its list; the last one takes its place.
func (t *topics) unlist(sub subscription) {
	list := t.lists[sub.prefix]
	last := len(list) - 1
	moved := list[last]
	list[sub.at], list[last] = moved, nil
	for i := range moved.subs {
		if moved.subs[i].prefix == sub.prefix {
			moved.subs[i].at = sub.at
		}
	}
	if last > 0 {
		t.lists[sub.prefix] = list[:last]
		return
	}
	delete(t.lists, sub.prefix)
	t.lengths[len(sub.prefix)]--
}

// match calls deliver once for each subscriber that has a prefix of topic.
func (t *topics) match(topic []byte, deliver func(*subscriber)) {
	t.mark++
	for n := range min(len(topic), maxPrefix) + 1 {
		if t.lengths[n] == 0 {
			continue
		}
		for _, s := range t.lists[string(topic[:n])] {
			if s.mark != t.mark {
				s.mark = t.mark
				deliver(s)
			}
		}
	}
}

// subscribes reads the old form of a subscription, a message 01 or 00 and the
// prefix.
func subscribes(message []byte) (prefix string, on bool, err error) {
	if len(message) == 0 || message[0] > 1 {
		return "", false, errors.New("a message from a subscriber that is not a subscription")
	}
	return string(message[1:]), message[0] == 1, nil
}
