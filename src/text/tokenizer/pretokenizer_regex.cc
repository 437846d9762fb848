#include "text/tokenizer/pretokenizer_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <ctime>

#include "base/error.h"
#include "base/text/utf8.h"

namespace quire {
namespace {

double seconds(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

// This thread's time for all that one matcher does, which is at most a text or a vocabulary. Real patterns take 0.015 us
// per byte, and less than 1 us where no machine code can be made.
class MatchBudget {
 public:
  void add(size_t bytes) { bytes_ += bytes; }
  double most() const { return std::min(10.0, 1 + 1e-6 * static_cast<double>(bytes_)); }
  bool is_spent() {
    // The thread's clock takes ten times as long to read, so it is read every tenth of a second only.
    if (const double now = seconds(CLOCK_MONOTONIC_COARSE); now < next_look_) return false;
    next_look_ = seconds(CLOCK_MONOTONIC_COARSE) + 0.1;
    return seconds(CLOCK_THREAD_CPUTIME_ID) - start_ > most();
  }

 private:
  size_t bytes_ = 0;
  double start_ = seconds(CLOCK_THREAD_CPUTIME_ID), next_look_ = seconds(CLOCK_MONOTONIC_COARSE) + 0.1;
};

namespace {

// Unicode's White_Space, for use inside a character class. PCRE2's own \s includes U+180E, which lost the property in
// Unicode 6.3.
constexpr std::string_view kSpaces =
    R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

// Time and memory grow with a pattern's length; the longest in use has about 1,200 bytes.
constexpr size_t kLongestPattern = 16384;

// Oniguruma's \w includes marks, unlike PCRE2's, but not circled digits. Only outside of a class does it include
// Latin-1's fractions and superscripts.
#define QUIRE_WORD_IN_CLASS \
  R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})"
constexpr std::string_view kWordInClass = QUIRE_WORD_IN_CLASS;
constexpr std::string_view kWord = QUIRE_WORD_IN_CLASS R"(\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

// Rewrites syntax that PCRE2 reads differently from Oniguruma and std::regex.
std::string translate(std::string_view pattern, const std::string& where) {
  std::string out;
  bool inside = false;  // a character class
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char next = pattern[++i];
      if (next == 's') {
        out += inside ? std::string(kSpaces) : "[" + std::string(kSpaces) + "]";
      } else if (next == 'S' && !inside) {
        out += "[^" + std::string(kSpaces) + "]";
      } else if (next == 'w') {
        out += inside ? std::string(kWordInClass) : "[" + std::string(kWord) + "]";
      } else if (next == 'W' && inside) {
        throw unsupported("{}: \\W inside a character class of a pattern is not supported", where);
      } else if (next == 'W') {
        out += "[^" + std::string(kWord) + "]";
      } else if ((next == 'b' || next == 'B') && !inside) {
        const char* const both =
            next == 'b' ? "(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))" : "(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))";
        out += fmt::format(fmt::runtime(both), kWord);
      } else if (next == 'h' || next == 'H') {
        throw unsupported("{}: \\{} in a pattern is not supported", where, next);
      } else {
        out += c;
        out += next;
      }
      continue;
    }
    if (inside && c == '&' && i + 1 < pattern.size() && pattern[i + 1] == '&') {
      throw unsupported("{}: an intersection of character classes (&&) in a pattern is not supported", where);
    }
    if (inside && c == '[' && (i + 1 >= pattern.size() || pattern[i + 1] != ':')) {
      throw unsupported("{}: a character class inside a character class of a pattern is not supported", where);
    }
    if (c == '[' && !inside) {
      inside = true;
      out += c;
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') out += "\\" + std::string(1, pattern[++i]);
      continue;
    }
    if (c == '[' && inside) {  // [:name:]
      const size_t end = pattern.find(":]", i);
      if (end == std::string_view::npos) throw invalid("{}: a [: without :] in a pattern", where);
      out += pattern.substr(i, end + 2 - i);
      i = end + 1;
      continue;
    }
    if (c == ']' && inside) inside = false;
    out += c;
  }
  return out;
}

// A pattern in a message.
std::string shown(const std::string& pattern) {
  constexpr size_t kMost = 200;
  return pattern.size() <= kMost ? pattern : pattern.substr(0, kMost) + "...";
}

std::string pcre_message(int code) {
  PCRE2_UCHAR text[256];
  return pcre2_get_error_message(code, text, sizeof text) < 0 ? fmt::format("error {}", code)
                                                              : std::string(reinterpret_cast<char*>(text));
}

// Real patterns take at most a few steps per byte. The limits are far higher, yet take less than a second in machine code.
constexpr uint32_t kMatchLimit = 50'000'000;
constexpr uint32_t kHeapLimitKiB = 256 * 1024;
constexpr size_t kJitStack = size_t{8} << 20;

// PCRE2 calls it before each item of a pattern that it interprets. A step of the interpreter can take so long that a limit
// on their number does not bound the time.
int check_budget(pcre2_callout_block*, void* budget) {
  return static_cast<MatchBudget*>(budget)->is_spent() ? PCRE2_ERROR_CALLOUT : 0;
}

// nullptr: the pattern does not compile, for the reason in `error`.
pcre2_code* compile(const std::string& source, uint32_t options, int& error) {
  PCRE2_SIZE offset = 0;
  return pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                       PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | options, &error, &offset, nullptr);
}

}  // namespace

struct Regex::Code {
  pcre2_code* machine = nullptr;      // compiled to machine code, where the system allows that
  pcre2_code* interpreted = nullptr;  // the same, with calls of check_budget(), unless that makes it too large
  bool has_machine_code = false;
  uint32_t matches_empty = 0;  // it may match an empty text
  Code() = default;
  ~Code() {
    pcre2_code_free(machine);
    pcre2_code_free(interpreted);
  }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
};

Regex::Regex(std::string_view pattern, const std::string& where) : pattern_(pattern) {
  if (pattern.size() > kLongestPattern)
    throw unsupported("{}: a pattern of {} bytes, at most {} are allowed", where, pattern.size(), kLongestPattern);
  const std::string source = translate(pattern, where);
  auto code = std::make_shared<Code>();
  int error = 0, ignored = 0;
  code->machine = compile(source, 0, error);
  if (!code->machine) throw invalid("{}: the pattern does not compile: {}", where, pcre_message(error));
  code->interpreted = compile(source, PCRE2_AUTO_CALLOUT, ignored);
  pcre2_pattern_info(code->machine, PCRE2_INFO_MATCHEMPTY, &code->matches_empty);
  code->has_machine_code = pcre2_jit_compile(code->machine, PCRE2_JIT_COMPLETE) == 0;
  code_ = std::move(code);
}

struct Regex::Matcher::Memory {
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 * 1024, kJitStack, nullptr);
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  MatchBudget budget;
  Memory() {
    if (!context || !stack || !data) throw no_resource("not enough memory to match a pre-tokenizer's pattern");
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKiB);
    pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_callout(context, check_budget, &budget);
  }
  ~Memory() {
    pcre2_match_data_free(data);
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
};

Regex::Matcher::Matcher() = default;
Regex::Matcher::~Matcher() = default;

size_t Regex::Matcher::find_some(Search& search, std::span<Range> found) {
  if (!memory_) memory_ = std::make_unique<Memory>();
  const Regex& regex = search.regex;
  const std::string_view text = search.text;
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  MatchBudget& budget = memory_->budget;
  if (search.at == 0) budget.add(text.size());
  const auto out_of_time = [&] {
    return no_resource("the pre-tokenizer's pattern {} takes more than {:.1f} seconds on this text",
                       shown(regex.pattern_), budget.most());
  };
  size_t count = 0, at = search.at;
  while (count < found.size() && (at < text.size() || (at == text.size() && at > 0 && regex.code_->matches_empty))) {
    if (count % 8 == 0 && budget.is_spent()) throw out_of_time();
    const auto match_with = [&](const pcre2_code* code) {
      return pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, memory_->data, memory_->context);
    };
    int result = regex.code_->has_machine_code ? match_with(regex.code_->machine) : PCRE2_ERROR_JIT_STACKLIMIT;
    // The interpreter keeps its state on the heap.
    if (result == PCRE2_ERROR_JIT_STACKLIMIT && regex.code_->interpreted) result = match_with(regex.code_->interpreted);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result == PCRE2_ERROR_CALLOUT) throw out_of_time();
    if (result < 0) {
      throw invalid("the pre-tokenizer's pattern {} fails on this text: {}", shown(regex.pattern_),
                    pcre_message(result));
    }
    const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(memory_->data);
    if (bounds[1] < bounds[0] || bounds[0] < at) {  // \K can put the end before the beginning
      throw unsupported("the pre-tokenizer's pattern {} matches backwards", regex.pattern_);
    }
    if (bounds[0] == bounds[1] && bounds[1] == search.last_end) {
      if (at == text.size()) break;
      at += utf8_length(text[at]);
      continue;
    }
    found[count++] = {bounds[0], bounds[1]};
    at = search.last_end = bounds[1];
  }
  search.at = at;
  return count;
}

}  // namespace quire
