#include "cli/serve/model_orders.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text/duration.h"
#include "cli/command_line.h"
#include "cli/flags/engine_options.h"
#include "cli/hub/model_names.h"
#include "engine/memory_plan.h"
#include "server/api/service.h"

namespace quire {
namespace {

std::string check_keep_alive(const std::string& text) {
  return parse_duration(text) ? "" : fmt::format("must be a duration such as 30s, 10m or 1h, not '{}'", text);
}

KeepAlive read_keep_alive(const std::string& text) {
  if (text.empty()) return {};
  const auto time = parse_duration(text);
  return time && time->count() >= 0 ? time : std::nullopt;
}

// NAME=MODEL, unless there is a file of this name. A name has no slash, so that the paths of others stay paths.
ModelOrder named_order(const std::string& argument, const EngineOptions& common) {
  ModelOrder order{.names = {}, .engine = common};
  const size_t equals = argument.find('=');
  std::error_code ignored;
  const bool named = equals != argument.npos && equals > 0 && argument.find('/') > equals &&
                     !std::filesystem::exists(argument, ignored);
  if (named) order.names = {argument.substr(0, equals)};
  order.engine.model = named ? argument.substr(equals + 1) : argument;
  return order;
}

// Reads one section: its lines are parsed as the command line would be.
ModelOrder read_section(const std::string& name, const std::vector<const CLI::ConfigItem*>& lines,
                        const EngineOptions& common) {
  ModelOrder order{.names = {name}, .engine = common};
  std::string keep_alive;
  CLI::App app;
  app.set_help_flag();
  add_engine_options(app, order.engine);
  add_chat_template_options(app, order.engine);
  app.add_option("--load-on-startup", order.at_start);
  app.add_option("--pinned", order.pinned);
  app.add_option("--keep-alive", keep_alive)->check(check_keep_alive, "", "");
  std::vector<std::string> arguments;
  for (const CLI::ConfigItem* line : lines) {
    const CLI::Option* const option = app.get_option_no_throw("--" + line->name);
    const bool is_switch = option && option->get_expected_max() == 0;
    if (is_switch && line->inputs == std::vector<std::string>{"false"}) continue;
    if (is_switch) arguments.push_back("--" + line->name);
    for (size_t i = 0; !is_switch && i < line->inputs.size(); ++i) {
      arguments.push_back("--" + line->name);
      arguments.push_back(line->inputs[i]);
    }
  }
  std::ranges::reverse(arguments);  // as CLI11 wants them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& e) {
    throw CLI::ValidationError(describe(e, app));
  }
  order.keep_alive = read_keep_alive(keep_alive);
  return order;
}

std::vector<ModelOrder> read_preset(const std::string& path, const EngineOptions& common) {
  std::ifstream file(path);
  if (!file) throw CLI::FileError::Missing(path);
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigINI().from_config(file);
  } catch (const CLI::Error& e) {
    throw CLI::ValidationError("--models-preset", fmt::format("{}: {}", path, e.what()));
  }
  std::vector<ModelOrder> orders;
  std::vector<std::pair<std::string, std::vector<const CLI::ConfigItem*>>> sections;
  for (const CLI::ConfigItem& item : items) {
    if (item.name == "++" || item.name == "--") continue;  // CLI11's marks around a section
    const std::string section = fmt::format("{}", fmt::join(item.parents, "."));
    if (section.empty())
      throw CLI::ValidationError("--models-preset",
                                 fmt::format("{}: {} stands before the first [NAME]", path, item.name));
    auto place = std::ranges::find(sections, section, [](const auto& s) { return s.first; });
    if (place == sections.end()) place = sections.insert(sections.end(), {section, {}});
    place->second.push_back(&item);
  }
  if (sections.empty()) throw CLI::ValidationError("--models-preset", fmt::format("{} has no section [NAME]", path));
  for (const auto& [name, lines] : sections) {
    try {
      orders.push_back(read_section(name, lines, common));
    } catch (const CLI::ParseError& e) {
      throw CLI::ValidationError("--models-preset", fmt::format("{}, section [{}]: {}", path, name, e.what()));
    }
  }
  return orders;
}

EngineOptions for_each_model(const EngineOptions& common) {
  EngineOptions each = common;
  each.memory_bytes = 0;  // --memory is for all together
  each.reserved_bytes = common.constraint_bytes;
  return each;
}

// If the model is named by where it is downloaded.
void use_local_copy(ModelOrder& order, bool offline) {
  auto local = local_copy(order.engine.model, {.offline = offline});
  if (!local) return;
  order.engine.model = std::move(local->path);
  if (order.names.empty()) order.names = std::move(local->names);
}

// One within that of the command line.
void give_cache_folder(ModelOrder& order) {
  std::string& folder = order.engine.cache_dir;
  if (folder.empty()) return;
  std::string own = order.names.front();
  std::ranges::replace(own, '/', '_');
  folder = (std::filesystem::path(folder) / own).string();
}

// Gives each model what it wishes for, or an equal part of what the others leave. wishes: as bytes; becomes what each gets.
void divide(std::vector<size_t*> wishes, size_t bytes) {
  std::ranges::sort(wishes, {}, [](const size_t* wish) { return *wish; });
  for (size_t i = 0; i < wishes.size(); ++i) {
    *wishes[i] = std::min(*wishes[i], bytes / (wishes.size() - i));
    bytes -= *wishes[i];
  }
}

}  // namespace

void add_model_flags(CLI::App& command, ModelFlags& flags) {
  command
      .add_option(
          "-m,--model", flags.models,
          "the model: a known name (`quire list`), a .gguf file, a Hugging Face directory, or hf:ORG/REPO[:QUANT], "
          "ollama:NAME[:TAG] or an https URL, which is downloaded (docs/hub.md); NAME=MODEL to serve it under that "
          "name. May be repeated: each request then names its model (docs/serving.md)")
      ->type_name("[NAME=]MODEL")
      ->allow_extra_args(false);
  command
      .add_option("--models-preset", flags.preset,
                  "serve the models of this INI file: a section [NAME] for each, whose lines are flags without dashes, "
                  "and pinned, load-on-startup and keep-alive (docs/serving.md)")
      ->type_name("FILE");
  command
      .add_option("--keep-alive", flags.keep_alive,
                  "unload a model that no request has used for so long, such as 10m (default: only when another model "
                  "needs its memory)")
      ->check(check_keep_alive, "", "")
      ->type_name("TIME");
}

std::vector<ModelOrder> read_model_orders(const ModelFlags& flags, const EngineOptions& common, bool offline) {
  const EngineOptions each = for_each_model(common);
  std::vector<ModelOrder> orders;
  for (const std::string& model : flags.models) orders.push_back(named_order(model, each));
  if (!flags.preset.empty()) {
    for (ModelOrder& order : read_preset(flags.preset, each)) orders.push_back(std::move(order));
  }
  if (orders.empty()) throw CLI::RequiredError("--model or --models-preset");
  for (ModelOrder& order : orders) {
    if (!order.keep_alive) order.keep_alive = read_keep_alive(flags.keep_alive);
    use_local_copy(order, offline);
  }
  orders.front().at_start = true;
  if (is_single(orders)) {
    EngineOptions& only = orders.front().engine;
    only.reserved_bytes = common.reserved_bytes;
    if (only.memory_bytes == 0) only.memory_bytes = common.memory_bytes;
    return orders;
  }
  std::set<std::string> names, files;
  for (ModelOrder& order : orders) {
    if (order.names.empty()) order.names = default_names(order.engine.model);
    for (const std::string& name : order.names) {
      if (!names.insert(name).second)
        throw CLI::ValidationError("--model", fmt::format("two models have the name {}; use NAME=MODEL", name));
    }
    for (const auto& [flag, file] :
         {std::pair{"--record", &order.engine.record}, {"--trace-out", &order.engine.trace_out}}) {
      if (!file->empty() && !files.insert(*file).second)
        throw CLI::ValidationError(flag,
                                   "with several models, each needs a file of its own; set it in --models-preset");
    }
    give_cache_folder(order);
  }
  return orders;
}

ModelOrder downloaded_order(const std::string& name, const ModelFlags& flags, const EngineOptions& common) {
  ModelOrder order{.names = {}, .engine = for_each_model(common), .keep_alive = read_keep_alive(flags.keep_alive)};
  EngineOptions& engine = order.engine;
  engine.model = name;
  engine.adapters.clear();  // these belong to the model of the command line
  engine.record.clear();
  engine.trace_out.clear();
  use_local_copy(order, true);
  give_cache_folder(order);
  return order;
}

bool is_single(const std::vector<ModelOrder>& orders) { return orders.size() == 1 && !orders.front().keep_alive; }

bool divide_memory(std::vector<ModelOrder>& orders, Runtime& runtime) {
  const size_t all = runtime.memory.left();
  std::vector<MemoryPlan> plans;
  std::vector<ModelFacts> facts;
  std::vector<size_t> caches(orders.size());
  std::vector<size_t*> wishes;
  size_t fixed = 0;  // what all models take, without the caches whose size is open
  for (size_t i = 0; i < orders.size(); ++i) {
    const EngineOptions& engine = orders[i].engine;
    facts.push_back(read_model_facts(engine));
    const size_t most = engine.memory_bytes > 0 ? std::min(engine.memory_bytes, all) : all;
    const MemoryPlan& plan = plans.emplace_back(plan_memory(facts.back(), engine, runtime.machine(most)));
    const bool open = engine.memory_bytes == 0 && engine.kv_cache_bytes == 0;
    fixed += open ? plan.without_cache() : plan.total();
    caches[i] = plan.cache.bytes;
    if (open) wishes.push_back(&caches[i]);
  }
  // Together only if a quarter of the memory is left for caches: tiny ones would serve nobody.
  const bool together = fixed <= (wishes.empty() ? all : all - all / 4);
  if (together) divide(wishes, all - fixed);
  for (size_t i = 0; i < orders.size(); ++i) {
    EngineOptions& engine = orders[i].engine;
    if (together && std::ranges::find(wishes, &caches[i]) != wishes.end()) {
      engine.memory_bytes = plans[i].without_cache() + caches[i];
      plans[i] = plan_memory(facts[i], engine, runtime.machine(engine.memory_bytes));
    }
    orders[i].max_model_len = static_cast<int>(plans[i].limits.max_positions);
  }
  return together;
}

}  // namespace quire
