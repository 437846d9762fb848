// Chat templates render byte for byte as in transformers: our own templates, and published ones where they are at hand.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/files/mapped_file.h"
#include "jinja/builtins/time.h"
#include "paths.h"
#include "text/chat_template.h"

namespace quire {
namespace {

using nlohmann::ordered_json;
namespace fs = std::filesystem;

ChatInput input_of(const ordered_json& doc, const ordered_json& row) {
  ChatInput in{.messages = row.at("messages"),
               .tools = row.at("tools"),
               .add_generation_prompt = false,
               .special_tokens = doc.at("special_tokens"),
               .now = jinja::parse_time(doc.at("now").get<std::string>())};
  for (const auto& [key, value] : row.at("kwargs").items()) {
    if (key == "add_generation_prompt")
      in.add_generation_prompt = value;
    else if (key == "continue_final_message")
      in.continue_final_message = value;
    else if (key == "documents")
      in.documents = value;
    else
      in.kwargs[key] = value;
  }
  return in;
}

void expect_rendering(const ChatTemplate& chat, const ordered_json& doc, const ordered_json& row) {
  const std::string where = doc.at("template").get<std::string>() + ": " + row.at("name").get<std::string>();
  try {
    const std::string text = chat.render(input_of(doc, row));
    // transformers forbids changing lists; llama.cpp's templates do.
    const bool changes_lists = row.value("error", "").starts_with("access to attribute 'append' of 'list'");
    if (row.contains("expected"))
      EXPECT_EQ(text, row["expected"].get<std::string>()) << where;
    else if (!changes_lists)
      ADD_FAILURE() << where << " should fail with " << row["error"] << " but gave\n" << text;
  } catch (const Error& e) {
    if (!row.contains("error"))
      ADD_FAILURE() << where << " failed: " << e.what();
    else if (row["error_type"] == "TemplateError") {
      EXPECT_EQ(e.what(), row["error"].get<std::string>()) << where;
      EXPECT_NE(dynamic_cast<const TemplateError*>(&e), nullptr) << where;
    } else {
      EXPECT_EQ(dynamic_cast<const TemplateError*>(&e), nullptr) << where;
    }
  }
}

// Each NAME.json of the folder belongs to a template; the number of cases.
int expect_renderings(const fs::path& folder, const fs::path& templates) {
  int cases = 0;
  for (const auto& file : fs::directory_iterator(folder)) {
    if (file.path().extension() != ".json") continue;
    const ordered_json doc = ordered_json::parse(read_text_file(file.path()));
    const std::string name = doc.at("template");
    const ChatTemplate chat = ChatTemplate::parse(read_text_file(templates / name), name);
    for (const ordered_json& row : doc.at("cases")) {
      expect_rendering(chat, doc, row);
      ++cases;
    }
  }
  return cases;
}

TEST(ChatTemplateGolden, RendersLikeTransformers) {
  const fs::path ours = golden_dir() / "templates", published = shared_dir() / "golden/templates";
  EXPECT_GE(expect_renderings(ours, ours), 250);
  if (fs::exists(published)) {
    EXPECT_GE(expect_renderings(published, shared_dir() / "data/templates"), 900);
  }
}

}  // namespace
}  // namespace quire
