#include "engine/drafting/drafter_kinds.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/option_names.h"

namespace quire {
namespace {

using KindList = std::vector<DrafterKind>;

TEST(DrafterKinds, HaveTheNamesOfTheOption) {
  for (const std::string_view drafter : kDrafters) {
    EngineOptions o;
    o.speculative = find_value(kSpeculationNames, drafter).value();
    o.draft_model = o.eagle_head = o.medusa_heads = "somewhere";
    const NamedDrafters named = named_drafters(o, false);
    const DrafterKind kind = named.model ? *named.model : named.texts.back();
    if (drafter == "corpus") {  // without a text of the user, recent answers
      EXPECT_EQ(name(kind), "recent");
    } else {
      EXPECT_EQ(name(kind), drafter);
    }
    EXPECT_EQ(named.texts.size() + named.model.has_value(), 1u);
  }
}

TEST(DrafterKinds, AreNoneWithoutSpeculation) {
  EngineOptions o;
  o.num_speculative_tokens = 0;  // does not matter
  EXPECT_FALSE(named_drafters(o, false).any());
}

TEST(DrafterKinds, OfAutoAreThoseWithMaterial) {
  EngineOptions o;
  o.speculative = Speculation::kAuto;
  EXPECT_EQ(named_drafters(o, false).texts, (KindList{DrafterKind::kNgram, DrafterKind::kRecent}));
  EXPECT_FALSE(named_drafters(o, false).model);
  o.speculative_corpus = "somewhere";
  EXPECT_EQ(named_drafters(o, false).texts,
            (KindList{DrafterKind::kNgram, DrafterKind::kCorpus, DrafterKind::kRecent}));
  EXPECT_EQ(named_drafters(o, true).model, DrafterKind::kMtp);
  o.medusa_heads = "somewhere";
  EXPECT_EQ(named_drafters(o, false).model, DrafterKind::kMedusa);
  o.eagle_head = "somewhere";
  EXPECT_EQ(named_drafters(o, false).model, DrafterKind::kEagle);
  o.draft_model = "somewhere";
  EXPECT_EQ(named_drafters(o, true).model, DrafterKind::kDraft);
}

}  // namespace
}  // namespace quire
