#include "engine/sequence_view.h"

namespace quire {
namespace {

SequenceView view(Sequence& s, const PageCache& cache) {
  SequenceView v;
  v.id = s.id;
  v.arrival = arrival(*s.request);
  v.priority = s.request->priority;
  v.tokens = static_cast<int>(s.tokens.size());
  v.computed = s.computed;
  v.all_logits = s.wants_all_logits();
  v.next_page = cache.next_page(s);
  return v;
}

}  // namespace

SequenceView view_running(Sequence& s, const PageCache& cache, bool own_pages) {
  SequenceView v = view(s, cache);
  const auto pages = s.pages.pages();
  v.pages = static_cast<int>(pages.size());
  if (own_pages) {
    for (const PageId page : pages) v.own_pages += cache.pool().users(page) == 1;
  }
  // Only the page of the next token can be both shared and written to.
  const auto next = static_cast<size_t>(s.computed / kPageTokens);
  v.shared_tail = next < pages.size() && cache.pool().shared(pages[next]);
  v.loading = s.cached.load.active;
  return v;
}

SequenceView view_waiting(Sequence& s, const PageCache& cache, Clock::time_point now) {
  SequenceView v = view(s, cache);
  const CachedPages& c = s.cached;
  v.computed = c.found * kPageTokens + c.tail;
  v.pages = c.found;
  v.idle_pages = c.idle;
  v.loads = c.loads;
  v.waited = seconds(now - s.request->submitted);
  return v;
}

}  // namespace quire
