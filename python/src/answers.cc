// AnswerQueue and its pieces for Python.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "engine_handle.h"
#include "from_python.h"
#include "quire/text.h"
#include "read_options.h"

namespace quire::python {
namespace {

using Ticket = AnswerQueue::Ticket;

constexpr double kLongestWait = 3600;

// A moved piece; numpy arrays made from it keep the memory.
using FloatArray = nb::ndarray<nb::numpy, float, nb::ndim<1>>;

std::optional<FloatArray> take_embedding(Output& piece) {
  if (piece.embedding.empty()) return std::nullopt;
  auto* owned = new std::vector<float>(std::move(piece.embedding));
  const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return FloatArray(owned->data(), {owned->size()}, owner);
}

nb::typed<nb::list, int> ids_of(std::span<const OutputToken> tokens) {
  nb::list ids;
  for (const OutputToken& token : tokens) ids.append(token.id);
  return ids;
}

// [(id, logprob, [(id, logprob), …]), …]
nb::list logprobs_of(std::span<const OutputToken> tokens) {
  nb::list all;
  for (const OutputToken& token : tokens) {
    nb::list top;
    for (const auto& [id, logprob] : token.top_logprobs) top.append(nb::make_tuple(id, logprob));
    all.append(nb::make_tuple(token.id, token.logprob, top));
  }
  return all;
}

Pooling pooling_of(std::string_view name) {
  if (name.empty()) return Pooling::kNone;
  if (name == "mean") return Pooling::kMean;
  if (name == "last") return Pooling::kLast;
  if (name == "cls") return Pooling::kFirst;
  throw nb::value_error(("pooling must be mean, last or cls, not " + std::string(name)).c_str());
}

PromptArray array_of(std::string_view name) {
  if (name == "hidden_states") return PromptArray::kHiddenStates;
  if (name == "logits") return PromptArray::kLogits;
  if (name == "token_logits") return PromptArray::kTokenLogits;
  throw nb::value_error(("array must be hidden_states, logits or token_logits, not " + std::string(name)).c_str());
}

uint64_t submit(const QueueHandle& self, const TokenArray& prompt, const nb::dict& sampling, bool at_end,
                nb::handle constraint, nb::handle pooling, size_t second_text, int priority, double timeout,
                nb::handle cache_salt, std::string adapter, nb::handle array) {
  const auto engine = self.engine.get();
  const auto queue = self.queue.get();
  Request request{.prompt = TokenIds(prompt.data(), prompt.data() + prompt.size()),
                  .sampling = read_sampling(sampling),
                  .cache_salt = cache_salt.is_none() ? std::string() : to_text(cache_salt, "cache_salt"),
                  .priority = priority,
                  .timeout = timeout,
                  .pooling = pooling.is_none() ? Pooling::kNone : pooling_of(to_text(pooling, "pooling")),
                  .array = array.is_none() ? PromptArray::kNone : array_of(to_text(array, "array")),
                  .second_text = second_text,
                  .adapter = std::move(adapter)};
  std::optional<ConstraintSource> source;
  if (!constraint.is_none()) source = read_constraint(nb::cast<nb::dict>(constraint));
  const WithoutGil others_may_run(*self.activity);
  if (source) request.constraint = engine->compile(*source);
  return static_cast<uint64_t>(
      queue->submit(std::move(request), at_end ? AnswerQueue::Announce::kEnd : AnswerQueue::Announce::kPieces));
}

nb::typed<nb::list, int> wait(const QueueHandle& self, double seconds) {
  if (!(seconds >= 0)) throw nb::value_error("a timeout must be at least 0 seconds");
  const auto queue = self.queue.get();
  std::vector<Ticket> ready;
  {
    const WithoutGil others_may_run(*self.activity);
    const std::chrono::duration<double> timeout(std::min(seconds, kLongestWait));
    ready = queue->wait(std::chrono::duration_cast<std::chrono::nanoseconds>(timeout));
  }
  if (self.activity->closed) throw std::runtime_error("the engine was closed before its answers ended");
  nb::list tickets;
  for (const Ticket ticket : ready) tickets.append(static_cast<uint64_t>(ticket));
  return tickets;
}

nb::typed<nb::list, Output> take(const QueueHandle& self, uint64_t ticket) {
  nb::list pieces;
  for (Output& piece : self.queue.get()->take(Ticket{ticket})) pieces.append(nb::cast(std::move(piece)));
  return pieces;
}

}  // namespace

void bind_answers(nb::module_& module) {
  nb::class_<Output>(module, "Piece", "What one choice has got since the last piece.")
      .def_ro("choice", &Output::choice)
      .def_ro("text", &Output::text)
      .def_prop_ro("token_ids", [](const Output& self) { return ids_of(self.tokens); })
      .def_prop_ro("logprobs", [](const Output& self) { return logprobs_of(self.tokens); })
      .def_prop_ro("prompt_logprobs", [](const Output& self) { return logprobs_of(self.prompt_logprobs); })
      .def_prop_ro("finish", [](const Output& self) { return nb::str(std::string(name(self.finish)).c_str()); })
      .def_ro("stop_reason", &Output::stop_reason)
      .def_ro("stop_token", &Output::stop_token)
      .def_ro("error", &Output::error)
      .def_prop_ro("cached_tokens", [](const Output& self) { return self.usage.cached_tokens; })
      .def_prop_ro("completion_tokens", [](const Output& self) { return self.usage.completion_tokens; })
      .def_prop_ro("seconds", [](const Output& self) { return self.usage.seconds; })
      .def_prop_ro("ttft_seconds", [](const Output& self) { return self.usage.ttft_seconds; })
      .def_prop_ro("queue_seconds", [](const Output& self) { return self.usage.queue_seconds; })
      .def("take_embedding", take_embedding,
           "The embedding or the array, float32, flat, without a copy; None if there is none, or on the second call.");

  nb::class_<QueueHandle>(module, "AnswerQueue", "Answers of an engine to the requests of one reader. Thread-safe.")
      .def(nb::init<EngineHandle&>(), nb::arg("engine"))
      .def("submit", submit, nb::arg("prompt").noconvert(), nb::arg("sampling"), nb::arg("at_end") = false,
           nb::arg("constraint") = nb::none(), nb::arg("pooling") = nb::none(), nb::arg("second_text") = SIZE_MAX,
           nb::arg("priority") = 0, nb::arg("timeout") = 0.0, nb::arg("cache_salt") = nb::none(),
           nb::arg("adapter") = "", nb::arg("array") = nb::none())
      .def("wait", wait, nb::arg("seconds"), "The tickets that have something to take. Other threads run meanwhile.")
      .def("take", take, nb::arg("ticket"))
      .def("cancel", [](const QueueHandle& self, uint64_t ticket) { self.queue.get()->cancel(Ticket{ticket}); })
      .def("cancel_all", [](const QueueHandle& self) { self.queue.get()->cancel_all(); })
      .def("forget", [](const QueueHandle& self, uint64_t ticket) { self.queue.get()->forget(Ticket{ticket}); })
      .def("interrupt", [](const QueueHandle& self) { self.queue.get()->interrupt(); })
      .def("open", [](const QueueHandle& self) { return self.queue.get()->open(); });
}

}  // namespace quire::python
