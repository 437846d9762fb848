#include "engine/roster.h"

#include <algorithm>

#include "engine/trace/engine_trace.h"

namespace quire {

Roster::Roster(PageCache& cache, TenantShares& shares, Outbox& outbox, int max_running, EngineTrace* trace)
    : cache_(cache), shares_(shares), outbox_(outbox), max_running_(max_running), trace_(trace) {}

Sequence* Roster::find(SequenceId id) {
  for (Sequences* list : {&running_, &waiting_}) {
    const auto at = std::find_if(list->begin(), list->end(), [&](const Sequence& s) { return s.id == id; });
    if (at != list->end()) return at->ended() ? nullptr : &*at;
  }
  return nullptr;
}

void Roster::add(Sequences&& arrived) {
  while (!arrived.empty()) {
    waiting_.splice(waiting_.end(), arrived, arrived.begin());
    Sequence& s = waiting_.back();
    s.id = SequenceId{++last_id_};
    attempt(s, [&] {
      cache_.begin(s);
      s.request->tenant_number = shares_.enter(s.request->tenant);
    });
  }
}

bool Roster::add_choice(Sequences& choices, bool may_run) {
  choices.front().id = SequenceId{++last_id_};
  const bool runs = may_run && !full();
  if (runs) {
    running_.splice(running_.end(), choices, choices.begin());
  } else {
    insert_waiting(choices, choices.begin());
  }
  return runs;
}

void Roster::admit(Sequences::iterator s) { running_.splice(running_.end(), waiting_, s); }

void Roster::preempt(Sequences::iterator s) {
  if (trace_) trace_->preempted(*s);
  cache_.release(*s);
  s->drafting.reset();
  insert_waiting(running_, s);
}

void Roster::insert_waiting(Sequences& from, Sequences::iterator s) {
  const auto after = std::find_if(waiting_.begin(), waiting_.end(), [&](const Sequence& other) {
    return !other.ended() && other.request->id > s->request->id;
  });
  waiting_.splice(after, from, s);
}

// One request of thousands of texts may be cancelled text by text, so each sequence is looked at once.
void Roster::cancel(std::vector<RequestId>& ids) {
  if (ids.empty()) return;
  std::sort(ids.begin(), ids.end());
  for (Sequences* list : {&running_, &waiting_}) {
    for (Sequence& s : *list) {
      if (!s.ended() && std::binary_search(ids.begin(), ids.end(), s.request->id)) s.request->cancelled = true;
    }
  }
}

void Roster::choice_ended(RequestState& r) {
  if (--r.choices_left == 0 && r.tenant_number != RequestState::kNoTenant) shares_.leave(r.tenant_number);
  ++finished_;
}

void Roster::end(Sequence& s, FinishReason reason, std::string_view error) {
  if (trace_) trace_->finished(s, reason);
  tell_end(s, reason, error);
  while (s.forks_pending && s.choice + 1 < s.request->sampling.n) {
    choice_ended(*s.request);
    ++s.choice;
    tell_end(s, reason, error);
  }
  give_up(s);
}

void Roster::tell_end(Sequence& s, FinishReason reason, std::string_view error) {
  if (!s.given_up) outbox_.add(s, s.finish(reason, error));
}

void Roster::leave(Sequence& s, FinishReason reason) {
  if (trace_) trace_->finished(s, reason);
  give_up(s);
}

void Roster::give_up(Sequence& s) {
  cache_.release(s);
  choice_ended(*s.request);
  s.request = nullptr;
}

void Roster::end_unwanted() {
  const auto now = Clock::now();
  for (Sequences* list : {&running_, &waiting_}) {
    for (Sequence& s : *list) {
      if (s.ended()) continue;
      const bool late = now >= s.request->deadline;
      if (s.given_up) {
        leave(s, FinishReason::kError);
      } else if (late || s.request->cancelled) {
        end(s, late ? FinishReason::kTimeout : FinishReason::kCancelled);
      }
    }
  }
  remove_ended();
}

void Roster::end_all(FinishReason reason, std::string_view error) {
  for (Sequences* list : {&running_, &waiting_}) {
    for (Sequence& s : *list) {
      if (!s.ended()) end(s, reason, error);
    }
  }
  remove_ended();
}

void Roster::remove_ended() {
  for (Sequences* list : {&running_, &waiting_}) {
    list->remove_if([](const Sequence& s) { return s.ended(); });
  }
}

}  // namespace quire
