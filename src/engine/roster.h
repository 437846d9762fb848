// The sequences inside the engine, running and waiting.
#pragma once

#include <cstdint>
#include <new>
#include <string_view>
#include <vector>

#include "engine/answer/outbox.h"
#include "engine/cache/page_cache.h"
#include "engine/fair_queue.h"
#include "engine/sequence.h"

namespace quire {

class EngineTrace;

// Moving a sequence between the lists never allocates. Pointers and iterators stay valid until remove_ended().
// An ended sequence stays in its list until then. Used by the engine's thread alone.
class Roster {
 public:
  // trace: hears of answers that end or are preempted; may be nullptr. All must outlive the roster.
  Roster(PageCache& cache, TenantShares& shares, Outbox& outbox, int max_running, EngineTrace* trace);

  Sequences& running() { return running_; }
  const Sequences& running() const { return running_; }
  Sequences& waiting() { return waiting_; }  // by request, in the order of submission
  const Sequences& waiting() const { return waiting_; }
  bool idle() const { return running_.empty() && waiting_.empty(); }
  bool full() const { return static_cast<int>(running_.size()) >= max_running_; }
  Sequence* find(SequenceId id);  // nullptr if it has left; linear

  // Takes new requests, one sequence each; they wait.
  void add(Sequences&& arrived);
  // Takes the first of `choices`, which were forked from a running sequence: it runs if it may and there is room,
  // otherwise it waits. Returns whether it runs.
  bool add_choice(Sequences& choices, bool may_run);
  void admit(Sequences::iterator s);    // from waiting to running
  void preempt(Sequences::iterator s);  // from running to waiting; releases its pages

  // Runs work() on behalf of one sequence. If it throws std::bad_alloc or Error, only this sequence ends, with kError.
  template <class Work>
  void attempt(Sequence& s, Work work) {
    try {
      work();
    } catch (const std::bad_alloc&) {
      if (!s.ended()) end(s, FinishReason::kError, kOutOfMemory);
    } catch (const Error& e) {
      if (!s.ended()) end(s, FinishReason::kError, e.what());
    }
  }

  void cancel(std::vector<RequestId>& ids);  // takes effect in end_unwanted(); sorts ids
  // Tells the client that the answer has ended, also for choices not yet forked from it, and leaves.
  void end(Sequence& s, FinishReason reason, std::string_view error = {});
  // The client knows that the answer has ended, for this reason: gives up its pages and marks it as ended.
  void leave(Sequence& s, FinishReason reason);
  // Ends cancelled requests, those past their deadline, and those whose clients could not be told something.
  void end_unwanted();
  void end_all(FinishReason reason, std::string_view error = {});
  void remove_ended();

  uint64_t finished() const { return finished_; }  // answers, since the beginning

 private:
  void tell_end(Sequence& s, FinishReason reason, std::string_view error);
  void give_up(Sequence& s);
  void choice_ended(RequestState& r);
  void insert_waiting(Sequences& from, Sequences::iterator s);

  PageCache& cache_;
  TenantShares& shares_;
  Outbox& outbox_;
  const int max_running_;
  EngineTrace* const trace_;
  Sequences running_, waiting_;
  uint64_t last_id_ = 0, finished_ = 0;
};

}  // namespace quire
