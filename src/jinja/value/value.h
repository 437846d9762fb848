// The values of a template behave like Python's. Immutable except namespaces and lists; shared by reference. Failures
// throw Error with Python's message; the evaluator adds the line.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "jinja/value/meter.h"

namespace quire::jinja {

__extension__ using Int = __int128;  // Python's are unbounded; beyond ±2^127 is an Error here

struct None {
  bool operator==(const None&) const = default;
};
struct Missing;   // jinja2's Undefined
struct Text;      // str
struct Sequence;  // list, tuple, range, a dict's views
struct Dict;
struct Generator;
struct Namespace;
struct Callable;  // a macro, a global function, a bound method
class LoopState;  // the variable `loop`

template <class T>
using Ref = std::shared_ptr<T>;
using TextRef = Ref<const Text>;

class Value {
 public:
  using Variant = std::variant<Ref<const Missing>, None, bool, Int, double, TextRef, Ref<const Sequence>,
                               Ref<const Dict>, Ref<Generator>, Ref<Namespace>, Ref<const Callable>, Ref<LoopState>>;
  Value() = default;  // undefined, nameless
  template <class T>
  requires std::is_constructible_v<Variant, T> &&(!std::is_same_v<std::remove_cvref_t<T>, Value>)Value(T&& v)
      : v_(std::forward<T>(v)) {}  // NOLINT(google-explicit-constructor): a value is what it holds

  template <class T>
  bool is() const {
    return std::holds_alternative<T>(v_);
  }
  template <class T>
  const T& as() const {
    return std::get<T>(v_);
  }
  bool is_undefined() const { return is<Ref<const Missing>>(); }
  bool is_none() const { return is<None>(); }
  bool is_int() const { return is<Int>() || is<bool>(); }  // True is an int
  bool is_number() const { return is_int() || is<double>(); }
  Int to_int() const { return is<bool>() ? Int{as<bool>()} : as<Int>(); }
  double to_double() const { return is<double>() ? as<double>() : static_cast<double>(to_int()); }

  const Text* text() const { return is<TextRef>() ? as<TextRef>().get() : nullptr; }
  const Sequence* sequence() const { return is<Ref<const Sequence>>() ? as<Ref<const Sequence>>().get() : nullptr; }
  const Dict* dict() const { return is<Ref<const Dict>>() ? as<Ref<const Dict>>().get() : nullptr; }
  const Variant& variant() const { return v_; }

 private:
  Variant v_;
};

using Values = std::vector<Value>;

struct Missing {
  std::string message;  // the error of using it: "'x' is undefined"
};

struct Text {
  std::string bytes;
  bool markup = false;  // result of `safe`: `+` escapes the other operand, as in markupsafe
  Charge charge;
};

enum class SequenceKind : uint8_t { kList, kTuple, kRange, kKeys, kValues, kItems };

// Lists may change. A list that is an item of another value never gets deeper: so the depths of all values stay right,
// and no value contains itself.
struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  Values items;
  int depth = 1;
  Charge charge;
  mutable bool held = false;  // by another value
};

// In insertion order. Keys are hashable values.
struct Dict {
  std::vector<std::pair<Value, Value>> items;
  std::unordered_multimap<size_t, size_t> index;  // hash → position; used from nine items on
  int depth = 1;
  Charge charge;

  const Value* find(const Value& key) const;  // null: no such key
  const Value* find(std::string_view key) const;
};

// A sequence that can be read once. Its items are computed when it is made.
struct Generator {
  Values items;
  size_t next = 0;
  int depth = 1;
  Charge charge;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
  Charge charge;
};

struct Args {
  Values positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Evaluator;
struct Callable {
  std::string name;
  std::function<Value(Evaluator&, const Args&)> call;
  int depth = 1;
  bool is_macro = false;
  Charge charge;
  bool of_list = false;  // a method; may only be called, because its list may get deeper
};

Value make_text(Meter& meter, std::string bytes, bool markup = false);
Value make_sequence(Meter& meter, Values items, SequenceKind kind = SequenceKind::kList);
void insert_item(Meter& meter, const Value& list, size_t at, const Value& item);  // Error: it would get too deep
inline Value make_tuple(Meter& meter, Values items) {
  return make_sequence(meter, std::move(items), SequenceKind::kTuple);
}
Value make_dict(Meter& meter, std::vector<std::pair<Value, Value>> items);  // the last value of equal keys wins
Value make_generator(Meter& meter, Values items);
Value make_callable(Meter& meter, std::string name, std::function<Value(Evaluator&, const Args&)> call,
                    const Value* self = nullptr);
Value make_undefined(std::string message);
int value_depth(const Value& v);

std::string_view type_name(const Value& v);  // Python's: "str", "dict", "NoneType"
std::string owner_name(const Value& v);      // in "'dict object' has no attribute 'x'"
bool is_true(const Value& v);
bool equals(Meter& meter, const Value& a, const Value& b);
size_t hash_of(const Value& v);  // Error: unhashable type
// a < b for numbers, strings and sequences; Error naming `op` for others.
bool less(Meter& meter, const Value& a, const Value& b, std::string_view op = "<");
bool contains(Meter& meter, const Value& item, const Value& container);
// dict.find(key), metered. Error: unhashable type.
const Value* look_up(Meter& meter, const Dict& dict, const Value& key);
// The items of a for loop: items, keys or characters. Exhausts a generator. Error: not iterable.
Values iterate(Meter& meter, const Value& v);
// len(); -1 if Python has none.
int64_t length_of(const Value& v);

}  // namespace quire::jinja
