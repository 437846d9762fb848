#include "engine/sequence_view.h"

namespace quire {
namespace {

SequenceView view(Sequence& s, const PageCache& cache) {
  SequenceView v;
  v.id = s.id;
  v.arrival = arrival(*s.request);
  v.priority = s.request->priority;
  v.tenant = s.request->tenant_number;
  v.tenant_priority = s.request->tenant_priority;
  v.tokens = static_cast<int>(s.tokens.size());
  v.computed = s.computed;
  v.all_logits = s.wants_all_logits();
  v.decodes = s.decodes;
  v.next_page = cache.next_page(s);
  return v;
}

}  // namespace

SequenceView view_running(Sequence& s, const PageCache& cache, bool own_units) {
  SequenceView v = view(s, cache);
  v.pages = s.pages.pages();
  v.units = s.pages.held_units();
  // Only the page of the next token can be both shared and written to. (While pages are loaded, they lie after it.)
  const int next = s.computed / kPageTokens;
  for (int group = 0; group < s.pages.groups(); ++group) {
    const int first = s.pages.first_held(group);
    for (int page = first; own_units && page < v.pages; ++page)
      v.own_units += cache.shared().pool().users(s.pages.unit(group, page)) == 1;
    v.shared_tail |= next >= first && next < v.pages && cache.shared().pool().shared(s.pages.unit(group, next));
  }
  v.loading = s.cached.load.active;
  v.drafts = static_cast<int>(s.drafts.size());
  return v;
}

SequenceView view_waiting(Sequence& s, const PageCache& cache, Clock::time_point now) {
  SequenceView v = view(s, cache);
  const PrefixHit& hit = s.cached.hit;
  v.computed = hit.found * kPageTokens + hit.tail;
  v.pages = hit.found;
  v.units = hit.units;
  v.idle_units = hit.idle;
  v.loads = hit.loads > 0;
  v.load_units = hit.load_units;
  v.awaits = hit.awaits;
  v.waited = seconds(now - s.request->submitted);
  return v;
}

}  // namespace quire
