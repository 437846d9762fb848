#include "engine/constraint_compiler.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <future>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/working_memory.h"
#include "grammar/compose.h"
#include "grammar/matcher.h"

namespace quire {
namespace {

size_t text_bytes(const ConstraintSource& source) {
  size_t bytes = source.text.size();
  for (const ConstraintSource& part : source.parts) bytes += text_bytes(part);
  return bytes;
}

// On a low-priority thread of its own, so that answers that are being generated on all cores hardly slow down. (The caller
// cannot lower its own priority for a while: raising it again needs a privilege.)
Constraint compile_aside(const ConstraintSource& source, const grammar::Limits& limits,
                         std::shared_ptr<const grammar::Vocabulary> vocabulary, WorkingMemory* memory) {
  constexpr int kNice = 15;  // if this fails, compiling runs at normal priority
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kNice);
  const WorkingIn counted(memory);
  Constraint made = grammar::compile(source, limits);
  // The first mask, which the answer needs anyway: a grammar whose beginning needs too much is refused with the request.
  std::vector<uint32_t> mask(vocabulary->mask_words());
  grammar::Matcher(std::move(vocabulary), made).fill_mask(mask);
  return made;
}

}  // namespace

std::shared_ptr<const grammar::Vocabulary> grammar_vocabulary(const Tokenizer& tokenizer, int vocab,
                                                              std::span<const TokenId> end_tokens) {
  std::vector<std::string_view> bytes(static_cast<size_t>(vocab));
  std::vector<grammar::SpecialToken> special;
  for (TokenId id = 0; id < std::min(vocab, tokenizer.vocab_size()); ++id) {
    const TokenKind kind = tokenizer.kind(id);
    if (tokenizer.is_special(id) || tokenizer.is_control(id) || kind == TokenKind::kUnknown ||
        kind == TokenKind::kUnused) {
      special.push_back({id, std::string(tokenizer.token_text(id))});
    } else {
      if (tokenizer.is_added(id)) special.push_back({id, std::string(tokenizer.token_text(id)), true});
      bytes[static_cast<size_t>(id)] = tokenizer.token_bytes(id);
    }
  }
  return grammar::Vocabulary::build(bytes, special, end_tokens);
}

std::shared_ptr<const grammar::Vocabulary> ConstraintCompiler::vocabulary() {
  if (!tokenizer_) throw unsupported("structured output needs a vocabulary, which this model does not have");
  std::call_once(vocabulary_made_, [&] {
    const WorkingIn uncounted(nullptr);
    vocabulary_ = grammar_vocabulary(*tokenizer_, vocab_, end_tokens_);
  });
  return vocabulary_;
}

Constraint ConstraintCompiler::compile(const ConstraintSource& source) {
  {
    const std::lock_guard lock(mutex_);
    const auto known = std::find_if(compiled_.begin(), compiled_.end(), [&](auto& c) { return c.source == source; });
    if (known != compiled_.end()) {
      compiled_.splice(compiled_.begin(), compiled_, known);
      return known->constraint;
    }
  }
  grammar::Limits limits{.shared = memory_};
  limits.cache_bytes = std::min(limits.cache_bytes, memory_->limit() / 4);
  Constraint constraint =
      std::async(std::launch::async, compile_aside, std::cref(source), std::cref(limits), vocabulary(), working_memory)
          .get();
  if (const size_t bytes = 2 * constraint->memory(); bytes > memory_->limit()) {  // as Grammar reports it
    throw no_resource("the grammar takes {} KiB of memory; all grammars together may take {} KiB", bytes >> 10,
                      memory_->limit() >> 10);
  }
  remember(source, constraint);
  if (memory_->full()) forget_unused();
  if (memory_->full()) throw std::bad_alloc();
  return constraint;
}

void ConstraintCompiler::forget_unused() {
  const std::lock_guard lock(mutex_);
  compiled_.remove_if([](const Compiled& c) { return c.constraint.use_count() == 1; });
}

void ConstraintCompiler::remember(const ConstraintSource& source, const Constraint& constraint) {
  const std::lock_guard lock(mutex_);
  compiled_.push_front({source, constraint});
  size_t bytes = 0;
  auto c = compiled_.begin();
  for (size_t i = 0; c != compiled_.end() && i < kMostCached; ++c, ++i) {
    bytes += text_bytes(c->source) + c->constraint->memory();
    if (bytes > memory_->limit() / 2) break;
  }
  compiled_.erase(c, compiled_.end());
}

}  // namespace quire
