#include "jinja/loop.h"

#include <algorithm>

#include "jinja/eval.h"

namespace quire::jinja {

LoopState::LoopState(Meter& meter, Values items, std::function<bool(const Value&)> passes, int recursion)
    : items_(std::move(items)),
      charge_(meter, sizeof(LoopState) + items_.capacity() * sizeof(Value)),
      passes_(std::move(passes)),
      recursion_(recursion) {
  for (const Value& v : items_) depth_ = std::max(depth_, jinja::value_depth(v) + 1);
  if (depth_ > kMaxValueDepth) throw invalid("values are nested more than {} deep", kMaxValueDepth);
}

void LoopState::end() {
  ended_ = true;
  passes_ = nullptr;
  call_again = nullptr;
  last_changed_.reset();
}

size_t LoopState::next_passing(size_t from) {
  while (from < items_.size() && passes_ && !passes_(items_[from])) ++from;
  return from;
}

size_t LoopState::peek() {
  if (!ahead_) ahead_ = next_passing(index_ < 0 ? 0 : std::min(current_ + 1, items_.size()));
  return *ahead_;
}

bool LoopState::advance() {
  const size_t next = peek();
  ahead_.reset();
  if (next >= items_.size()) return false;
  previous_ = current_;
  current_ = next;
  ++index_;
  return true;
}

int64_t LoopState::length() {
  if (passes_) {  // checks all remaining items
    size_t keep = std::min(current_ + 1, items_.size());
    for (size_t i = keep; i < items_.size(); ++i)
      if (passes_(items_[i])) items_[keep++] = items_[i];
    items_.resize(keep);
    passes_ = nullptr;
    ahead_.reset();
  }
  return index_ + 1 + static_cast<int64_t>(items_.size() - std::min(current_ + 1, items_.size()));
}

std::optional<Value> LoopState::attribute(Evaluator& evaluator, std::string_view name, const Ref<LoopState>& self) {
  if (name == "index0") return Int{index_};
  if (name == "index") return Int{index_ + 1};
  if (name == "first") return index_ == 0;
  if (name == "last") return peek() >= items_.size();
  if (name == "length") return Int{length()};
  if (name == "revindex") return Int{length() - index_};
  if (name == "revindex0") return Int{length() - index_ - 1};
  if (name == "depth0") return Int{recursion_};
  if (name == "depth") return Int{recursion_ + 1};
  if (name == "previtem") return index_ == 0 ? make_undefined("there is no previous item") : items_[previous_];
  if (name == "nextitem") return peek() >= items_.size() ? make_undefined("there is no next item") : items_[peek()];
  const Value me = self;
  if (name == "cycle") {
    return make_callable(
        evaluator.meter, "cycle",
        [me](Evaluator&, const Args& args) -> Value {
          if (args.positional.empty()) throw invalid("no items for cycling given");
          const auto index = static_cast<size_t>(me.as<Ref<LoopState>>()->index_);
          return args.positional[index % args.positional.size()];
        },
        &me);
  }
  if (name == "changed") {
    return make_callable(
        evaluator.meter, "changed",
        [me](Evaluator& e, const Args& args) -> Value {
          LoopState& loop = *me.as<Ref<LoopState>>();
          const Value now = make_tuple(e.meter, args.positional);
          const bool changed = !loop.last_changed_ || !equals(e.meter, *loop.last_changed_, now);
          if (!loop.ended_) loop.last_changed_ = now;
          loop.depth_ = std::max(loop.depth_, jinja::value_depth(now) + 1);
          return changed;
        },
        &me);
  }
  return std::nullopt;
}

}  // namespace quire::jinja
