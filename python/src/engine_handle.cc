#include "engine_handle.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "from_python.h"
#include "quire/chat.h"
#include "quire/text.h"
#include "read_options.h"

namespace quire::python {

void EngineHandle::close() {
  if (engine.closed()) return;
  auto released = engine.release();
  activity->closed = true;
  const auto open = std::exchange(queues, {});
  const nb::gil_scoped_release others_may_run;
  for (const auto& weak : open) {
    if (const auto queue = weak.lock()) {
      queue->cancel_all();
      queue->interrupt();
    }
  }
  released.reset();
}

QueueHandle::QueueHandle(EngineHandle& handle)
    : engine(handle.engine.get()), queue(std::make_shared<AnswerQueue>(*engine.get())), activity(handle.activity) {
  std::erase_if(handle.queues, [](const auto& weak) { return weak.expired(); });
  handle.queues.push_back(queue.get());
}

namespace {

using IdArray = nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>;

IdArray new_array(TokenIds ids) {
  auto* owned = new TokenIds(std::move(ids));
  const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<TokenIds*>(p); });
  return IdArray(owned->data(), {owned->size()}, owner);
}

std::string_view text_of(Score score) {
  return score == Score::kSigmoid ? "sigmoid" : score == Score::kYesNo ? "yes_no" : "raw";
}

std::string_view text_of(Pooling pooling) {
  return pooling == Pooling::kMean    ? "mean"
         : pooling == Pooling::kLast  ? "last"
         : pooling == Pooling::kFirst ? "cls"
                                      : "";
}

nb::str to_str(std::string_view text) { return nb::str(text.data(), text.size()); }

nb::dict info_of(const ModelInfo& info) {
  nb::dict values;
  values["name"] = info.name;
  values["architecture"] = info.architecture;
  values["quantization"] = info.quantization;
  values["kernels"] = info.kernels;
  values["activations"] = info.activations;
  values["kv_cache_dtype"] = info.kv_cache_dtype;
  values["threads"] = info.threads;
  values["vocab_size"] = info.vocab_size;
  values["layers"] = info.layers;
  values["gpu_layers"] = info.gpu_layers;
  values["cpu_moe_layers"] = info.cpu_moe_layers;
  values["hidden"] = info.hidden;
  values["max_model_len"] = info.max_model_len;
  values["generates"] = info.generates;
  values["pooling"] = to_str(text_of(info.pooling));
  values["embedding_size"] = info.embedding_size;
  values["labels"] = info.labels;
  values["score"] = to_str(text_of(info.score));
  values["parameters"] = info.parameters;
  values["weight_bytes"] = info.weight_bytes;
  values["kv_cache_bytes"] = info.kv_cache_bytes;
  values["memory_bytes"] = info.memory_bytes;
  nb::dict defaults;
  const SamplingDefaults& d = info.sampling_defaults;
  if (d.temperature) defaults["temperature"] = *d.temperature;
  if (d.top_p) defaults["top_p"] = *d.top_p;
  if (d.min_p) defaults["min_p"] = *d.min_p;
  if (d.repetition_penalty) defaults["repetition_penalty"] = *d.repetition_penalty;
  if (d.top_k) defaults["top_k"] = *d.top_k;
  values["sampling_defaults"] = defaults;
  return values;
}

nb::dict stats_of(const EngineStats& stats) {
  nb::dict values;
  values["running"] = stats.running;
  values["waiting"] = stats.waiting;
  values["steps"] = stats.steps;
  values["preemptions"] = stats.preemptions;
  values["prompt_tokens"] = stats.prompt_tokens;
  values["generated_tokens"] = stats.generated_tokens;
  values["finished_requests"] = stats.finished_requests;
  values["prefix_hit_tokens"] = stats.prefix_hit_tokens;
  values["decode_seconds"] = stats.decode_seconds;
  values["prompt_seconds"] = stats.prompt_seconds;
  values["drafted_tokens"] = stats.drafted_tokens;
  values["accepted_tokens"] = stats.accepted_tokens;
  return values;
}

MessagesOptions messages_options(std::string tools, std::string template_kwargs, std::string chat_template,
                                 bool add_generation_prompt, bool continue_final_message) {
  return {.tools = std::move(tools),
          .template_kwargs = std::move(template_kwargs),
          .chat_template = std::move(chat_template),
          .add_generation_prompt = add_generation_prompt,
          .continue_final_message = continue_final_message};
}

// What copy, pickle and multiprocessing call.
nb::object refuse_pickling(nb::handle, nb::args) {
  throw nb::type_error(
      "an engine cannot be pickled or copied: it is threads and memory of this process. Pass the options, and load the "
      "model there");
}

}  // namespace

void bind_engine(nb::module_& module) {
  nb::class_<EngineHandle>(module, "Engine", "A loaded model. Thread-safe.")
      .def(
          "__init__",
          [](EngineHandle* self, const nb::dict& values) {
            const EngineOptions options = read_engine_options(values);
            std::shared_ptr<Engine> engine;
            {
              const nb::gil_scoped_release others_may_run;
              engine = std::make_shared<Engine>(options);
            }
            new (self) EngineHandle(std::move(engine));
          },
          nb::arg("options"))
      .def("close", &EngineHandle::close, "Cancels all requests and frees the model.")
      .def_prop_ro("closed", [](const EngineHandle& self) { return self.engine.closed(); })
      .def_prop_ro(
          "calls", [](const EngineHandle& self) { return self.activity->calls; },
          "Calls of other threads that have not returned.")
      .def("info", [](const EngineHandle& self) { return info_of(self.engine.get()->info()); })
      .def("stats", [](const EngineHandle& self) { return stats_of(self.engine.get()->stats()); })
      .def(
          "add_adapter",
          [](const EngineHandle& self, std::string name, std::string path) {
            const auto engine = self.engine.get();
            const WithoutGil others_may_run(*self.activity);
            engine->add_adapter({.name = std::move(name), .path = std::move(path)});
          },
          nb::arg("name"), nb::arg("path"))
      .def(
          "remove_adapter",
          [](const EngineHandle& self, const std::string& name) { self.engine.get()->remove_adapter(name); },
          nb::arg("name"))
      .def(
          "encode",
          [](const EngineHandle& self, nb::handle text, bool add_special) {
            const auto engine = self.engine.get();
            const std::string utf8 = to_text(text, "a text");
            TokenIds ids;
            {
              const WithoutGil others_may_run(*self.activity);
              ids = encode_text(*engine, utf8, add_special);
            }
            return new_array(std::move(ids));
          },
          nb::arg("text"), nb::arg("add_special") = true)
      .def(
          "decode",
          [](const EngineHandle& self, const TokenArray& ids, bool skip_special) {
            const std::span<const TokenId> tokens(ids.data(), ids.size());
            return decode_tokens(*self.engine.get(), tokens, skip_special);
          },
          nb::arg("ids").noconvert(), nb::arg("skip_special") = false)
      .def(
          "token_bytes",
          [](const EngineHandle& self, nb::handle id) {
            const std::string bytes = token_bytes(*self.engine.get(), to_integer<TokenId>(id, "a token id"));
            return nb::bytes(bytes.data(), bytes.size());
          },
          nb::arg("id"))
      .def("special_tokens",
           [](const EngineHandle& self) {
             const SpecialTokens tokens = special_tokens(*self.engine.get());
             nb::dict ids;
             if (tokens.bos) ids["bos"] = *tokens.bos;
             if (tokens.eos) ids["eos"] = *tokens.eos;
             if (tokens.unk) ids["unk"] = *tokens.unk;
             if (tokens.pad) ids["pad"] = *tokens.pad;
             return ids;
           })
      .def(
          "encode_messages",
          [](const EngineHandle& self, std::string messages, std::string tools, std::string kwargs,
             std::string chat_template, bool add, bool go_on) {
            const auto engine = self.engine.get();
            const MessagesOptions options =
                messages_options(std::move(tools), std::move(kwargs), std::move(chat_template), add, go_on);
            TokenIds ids;
            {
              const WithoutGil others_may_run(*self.activity);
              ids = encode_messages(*engine, messages, options);
            }
            return new_array(std::move(ids));
          },
          nb::arg("messages"), nb::arg("tools") = "", nb::arg("template_kwargs") = "", nb::arg("chat_template") = "",
          nb::arg("add_generation_prompt") = true, nb::arg("continue_final_message") = false)
      .def(
          "render_messages",
          [](const EngineHandle& self, std::string messages, std::string tools, std::string kwargs,
             std::string chat_template, bool add, bool go_on) {
            const auto engine = self.engine.get();
            const WithoutGil others_may_run(*self.activity);
            return render_messages(
                *engine, messages,
                messages_options(std::move(tools), std::move(kwargs), std::move(chat_template), add, go_on));
          },
          nb::arg("messages"), nb::arg("tools") = "", nb::arg("template_kwargs") = "", nb::arg("chat_template") = "",
          nb::arg("add_generation_prompt") = true, nb::arg("continue_final_message") = false)
      .def(
          "encode_pair",
          [](const EngineHandle& self, nb::handle query, nb::handle document, size_t most_tokens) {
            EncodedPair pair =
                encode_pair(*self.engine.get(), to_text(query, "data_1"), to_text(document, "data_2"), most_tokens);
            return std::pair(new_array(std::move(pair.prompt)), pair.second_text);
          },
          nb::arg("query"), nb::arg("document"), nb::arg("most_tokens") = 0)
      .def("__reduce_ex__", refuse_pickling,
           nb::sig("def __reduce_ex__(self, protocol: typing.SupportsIndex, /) -> str | tuple[typing.Any, ...]"))
      .def("__copy__", refuse_pickling)
      .def("__deepcopy__", refuse_pickling);
}

}  // namespace quire::python
