#include "model/pooled_output.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/text/quote.h"

namespace quire {
namespace {

constexpr std::string_view kClassifier = "ForSequenceClassification";

// The class without its packages: torch.nn.modules.activation.Tanh.
std::string_view last_name(std::string_view name) {
  name.remove_prefix(name.rfind('.') + 1);
  return name;
}

// The modes that are switched on, in the spelling of sentence-transformers' 1_Pooling/config.json.
Pooling read_pooling(const JsonField& config) {
  static constexpr std::pair<std::string_view, Pooling> kModes[] = {{"cls", Pooling::kFirst},
                                                                    {"cls_token", Pooling::kFirst},
                                                                    {"mean", Pooling::kMean},
                                                                    {"mean_tokens", Pooling::kMean},
                                                                    {"lasttoken", Pooling::kLast}};
  constexpr std::string_view kPrefix = "pooling_mode_";
  Pooling pooling = Pooling::kNone;
  const auto take = [&](const JsonField& place, std::string_view mode) {
    const auto* known = std::ranges::find(kModes, mode, &std::pair<std::string_view, Pooling>::first);
    if (known == std::end(kModes) || pooling != Pooling::kNone)
      throw unsupported("{}: pooling by {} is not supported; supported: one of cls, mean, lasttoken", place.where(),
                        quote(mode));
    pooling = known->second;
  };
  if (const auto mode = config.find("pooling_mode")) take(*mode, mode->string());
  for (const auto& [key, value] : config.members()) {
    if (key.starts_with(kPrefix) && value.json().is_boolean() && value.boolean())
      take(value, key.substr(kPrefix.size()));
  }
  return pooling;
}

PooledLayer read_dense(const SentenceModule& module, const JsonField& config) {
  PooledLayer layer{.name = module.folder + ".linear.weight", .size = config.get<int>("out_features")};
  const auto function = config.get_or<std::string>("activation_function", "torch.nn.modules.activation.Tanh");
  const std::string_view name = last_name(function);
  if (name == "Tanh") {
    layer.tanh = true;
  } else if (name != "Identity") {
    throw unsupported("{}: {} is not supported; supported: Tanh, Identity", config.where("activation_function"),
                      quote(function));
  }
  return layer;
}

void read_pooling_modules(const Checkpoint& checkpoint, ModelConfig& c) {
  for (const SentenceModule& module : checkpoint.hf()->modules) {
    if (module.kind == "Transformer" || module.kind == "Normalize") continue;  // embeddings are always normalised
    const bool is_pooling = module.kind == "Pooling", is_dense = module.kind == "Dense";
    if (!is_pooling && !is_dense)
      throw unsupported("{}: the module {} is not supported; supported: Transformer, Pooling, Dense, Normalize",
                        (checkpoint.path() / "modules.json").string(), quote(module.kind));
    if (!module.config) throw invalid("{} is missing", (checkpoint.path() / module.folder / "config.json").string());
    if (is_pooling) c.pooled.pooling = read_pooling(*module.config);
    if (is_dense) c.pooled.layers.push_back(read_dense(module, *module.config));
  }
}

// The classifier of a GGUF file: a linear with a nonlinearity, which some lack, and one with a result for each class.
void read_gguf_classifier(const Gguf& gguf, const TensorView& output, ModelConfig& c) {
  PooledLayer first{.name = "cls.weight", .size = c.hidden, .tanh = true};
  if (gguf.find_tensor("cls.norm.weight")) {  // ModernBERT
    first.tanh = false;
    first.nonlinearity = Nonlinearity::kGelu;
    first.norm = c.output_norm;
    first.norm_name = "cls.norm.weight";
  }
  if (c.pooled.pooling == Pooling::kNone) c.pooled.pooling = is_bidirectional(c) ? Pooling::kFirst : Pooling::kLast;
  if (gguf.find_tensor(first.name)) c.pooled.layers.push_back(first);
  if (output.shape.size() != 2) throw invalid("{}: tensor {} is not a matrix", gguf.file(), output.name);
  c.pooled.labels = static_cast<int>(std::min<uint64_t>(output.shape[0], 1u << 17));
  c.pooled.layers.push_back({.name = output.name, .size = c.pooled.labels});
  const std::string names = gguf.get<std::string>("general.architecture") + ".classifier.output_labels";
  const bool yes_no = gguf.has(names) && gguf.strings(names) == std::vector<std::string_view>{"yes", "no"};
  c.pooled.score = yes_no ? Score::kYesNo : c.pooled.labels == 1 ? Score::kSigmoid : Score::kRaw;
  c.has_logits = c.tied_output = false;
}

void read_gguf(const Gguf& gguf, ModelConfig& c) {
  const std::string key = gguf.get<std::string>("general.architecture") + ".pooling_type";
  // llama.cpp's numbers; kRank: a classifier.
  enum : uint8_t { kNone, kMean, kCls, kLast, kRank };
  static constexpr Pooling kPoolings[] = {Pooling::kNone, Pooling::kMean, Pooling::kFirst, Pooling::kLast};
  const int type = gguf.get_or<int>(key, kNone);
  if (type < kNone || type > kRank)
    throw unsupported("{}: key {}: {} is not supported; supported: 0 (none) to 4 (rank)", gguf.file(), key, type);
  const TensorView* output = gguf.find_tensor("cls.output.weight");
  if (output) return read_gguf_classifier(gguf, *output, c);
  if (type == kRank) throw invalid("{}: tensor cls.output.weight is missing; key {} says rank", gguf.file(), key);
  c.pooled.pooling = kPoolings[type];
}

// Qwen3-Reranker is a plain Qwen3 whose answer is yes or no. It is known by its model card, as for llama.cpp's converter,
// or by vLLM's classifier_from_token.
bool is_yes_no_reranker(const Checkpoint& checkpoint) {
  const JsonField& config = checkpoint.hf()->config;
  if (const auto tokens = config.find("classifier_from_token")) {
    if (tokens->as<std::vector<std::string>>() == std::vector<std::string>{"no", "yes"}) return true;
    throw unsupported("{}: {} is not supported; supported: [\"no\", \"yes\"]", tokens->where(), tokens->json().dump());
  }
  const auto card = checkpoint.path() / "README.md";
  std::error_code unreadable;
  return std::filesystem::exists(card, unreadable) &&
         read_text_file(card).find("# Qwen3-Reranker") != std::string::npos;
}

// The output matrix's rows of the two answers classify.
void classify_yes_no(const Checkpoint& checkpoint, ModelConfig& c) {
  const JsonField tokenizer = JsonField::read(checkpoint.path() / "tokenizer.json", size_t{256} << 20);
  const JsonField vocabulary = tokenizer.at("model").at("vocab");
  const auto yes = vocabulary.get<int>("yes"), no = vocabulary.get<int>("no");
  for (const int id : {yes, no}) {
    if (id < 0 || id >= c.vocab) throw invalid("{}: id {} is outside the model's vocabulary", vocabulary.where(), id);
  }
  c.pooled = {.pooling = Pooling::kLast, .labels = 2, .score = Score::kYesNo};
  c.pooled.layers.push_back({.name = c.tied_output ? "model.embed_tokens.weight" : "lm_head.weight",
                             .size = 2,
                             .file_rows = c.vocab,
                             .first_row = yes,
                             .row_step = no - yes});
  c.has_logits = c.tied_output = false;
}

}  // namespace

bool is_classifier(const HfConfig& files) {
  return files.config.get<std::vector<std::string>>("architectures").front().ends_with(kClassifier);
}

int read_labels(const HfConfig& files) {
  const JsonField& config = files.config;
  if (const auto names = config.find("id2label")) return static_cast<int>(names->members().size());
  return config.get_or<int>("num_labels", 2);  // transformers' default
}

std::string decoder_of(const std::string& name) {
  if (name.ends_with("LMHeadModel")) return name;
  for (const std::string_view ending : {kClassifier, std::string_view("TextModel"), std::string_view("Model")}) {
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size()) + "ForCausalLM";
  }
  return name;
}

void read_pooled_output(const Checkpoint& checkpoint, ModelConfig& c) {
  if (checkpoint.gguf()) return read_gguf(*checkpoint.gguf(), c);
  const HfConfig& files = *checkpoint.hf();
  const auto name = files.config.get<std::vector<std::string>>("architectures").front();
  const bool is_decoder = c.has_logits;
  if (name == "Qwen3ForCausalLM" && is_yes_no_reranker(checkpoint)) return classify_yes_no(checkpoint, c);
  if (is_decoder && decoder_of(name) != name) c.has_logits = c.tied_output = false;
  if (is_decoder && is_classifier(files)) {
    c.pooled = {.pooling = Pooling::kLast, .labels = read_labels(files)};
    c.pooled.layers.push_back({.name = "score.weight", .size = c.pooled.labels});
  }
  read_pooling_modules(checkpoint, c);
  if (c.pooled.labels != 1) return;
  // A score is a probability unless the files say that it is not.
  c.pooled.score = Score::kSigmoid;
  std::string function = files.config.get_or<std::string>("sbert_ce_default_activation_function", "");
  if (const auto section = files.config.find("sentence_transformers"))
    function = section->get_or<std::string>("activation_fn", function);
  if (last_name(function) == "Identity") c.pooled.score = Score::kRaw;
}

}  // namespace quire
