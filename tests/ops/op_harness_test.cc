// The harness of all ops: every check on every case of every family's table.
//
// Tests are named Check.case, for example Gradient.matmul_transposed; a check is registered only where it
// applies. A failure names the case and its line. Where there is a GPU everything runs there (an empty
// CUDA_VISIBLE_DEVICES hides it); a case whose op has no kernel for it yet is skipped, with that reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "lockstep/device/device.h"
#include "ops/op_checks.h"

namespace lockstep::testing {
namespace {

constexpr const Family* kFamilies[] = {
    &kArrayFamily,      &kAttentionFamily,   &kCollectiveFamily, &kConvFamily,
    &kDebuggingFamily,  &kElementwiseFamily, &kImageFamily,      &kMatmulFamily,
    &kNnFamily,         &kPlacesFamily,      &kRandomFamily,     &kRearrangeFamily,
    &kRecurrenceFamily, &kReduceFamily,      &kSortFamily,       &kUpdateFamily};

}  // namespace

const OpCases& all_cases() {
  static const OpCases cases = [] {
    OpCases all;
    for (const Family* family : kFamilies)
      for (OpCase& c : family->cases()) all.push_back(std::move(c));
    return all;
  }();
  return cases;
}

namespace {

class CheckTest final : public ::testing::Test {
 public:
  explicit CheckTest(std::function<void()> body) : body_(std::move(body)) {}
  void TestBody() override {
    try {
      body_();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported ||
          error.message().find("no kernel for") == std::string::npos)
        throw;
      GTEST_SKIP() << error.message();
    }
  }

 private:
  std::function<void()> body_;
};

void add_test(const char* suite, const CaseName& name, const std::function<void()>& body) {
  const std::source_location where = name.where;
  ::testing::RegisterTest(suite, name.c_str(), nullptr, nullptr, where.file_name(),
                          static_cast<int>(where.line()), [=]() -> ::testing::Test* {
                            return new CheckTest([=] {
                              const ::testing::ScopedTrace trace(where.file_name(),
                                                                 static_cast<int>(where.line()), name.text());
                              body();
                            });
                          });
}

void register_tests() {
  for (const auto* checks :
       {&kValueChecks, &kDerivativeChecks, &kCompileChecks, &kLayoutChecks, &kSpecialChecks})
    for (const Check& check : *checks)
      for (const OpCase& c : all_cases()) {
        // A case whose op does not exist fails in the test of coverage below.
        if (!c.op.empty() && !find_op(c.op)) continue;
        if (c.threads_only && std::string_view(check.name) != "Threads") continue;
        if (check.applies(c)) add_test(check.name, c.name, [&check, &c] { check.run(c); });
      }
  for (const Family* family : kFamilies)
    for (const BadCall& bad : family->bad_calls())
      add_test("BadCall", bad.name, [bad] {
        // A GPU finds bad values when the op happens, not when it is queued.
        const auto call = [&] {
          bad.call();
          current_device().synchronize();
        };
        expect_error(call, bad.code, bad.says, bad.name.where);
      });
}

// --- lines -------------------------------------------------------------------------------------------------

OpCase made(const CaseName& name) { return {.name = name + "_made"}; }

TEST(CaseNames, KnowTheirLine) {
  const auto here = std::source_location::current().line();
  const OpCase first{.name = "first"};
  const OpCase second = made("second");
  EXPECT_EQ(first.name.where.line(), here + 1);
  EXPECT_EQ(second.name.where.line(), here + 2) << "not that of the function which makes it";
  EXPECT_EQ(second.name, "second_made");
}

// --- coverage ----------------------------------------------------------------------------------------------

std::map<std::string, std::vector<const OpCase*>> cases_by_op() {
  std::map<std::string, std::vector<const OpCase*>> result;
  for (const OpCase& c : all_cases()) result[c.op].push_back(&c);
  return result;
}

TEST(Coverage, EveryRegisteredOpHasCases) {
  const auto cases = cases_by_op();
  for (const OpDef* op : registered_ops())
    EXPECT_TRUE(cases.contains(std::string(op->name)))
        << "op \"" << op->name << "\" has no case in tests/ops";
}

TEST(Coverage, EveryCaseIsOfARegisteredOp) {
  std::set<std::string> names;
  for (const OpCase& c : all_cases()) {
    EXPECT_TRUE(c.op.empty() || find_op(c.op))
        << "case \"" << c.name << "\" is of the unknown op \"" << c.op << "\"";
    EXPECT_TRUE(names.insert(c.name).second) << "two cases are called \"" << c.name << "\"";
    EXPECT_FALSE(c.op.empty() && !c.function) << "case \"" << c.name << "\" has neither an op nor a function";
  }
}

TEST(Coverage, EveryGradientIsCheckedAndNoOther) {
  for (const auto& [op, cases] : cases_by_op()) {
    const OpDef* def = find_op(op);
    if (!def) continue;
    const auto checked = [](const OpCase* c) { return c->derivatives > 0; };
    EXPECT_EQ(std::any_of(cases.begin(), cases.end(), checked), def->grad != nullptr) << op;
  }
}

TEST(Coverage, EveryKernelIsRunWithThreads) {
  for (const auto& [op, cases] : cases_by_op())
    if (std::any_of(cases.begin(), cases.end(), [](const OpCase* c) { return has_kernel(*c); })) {
      EXPECT_TRUE(std::any_of(cases.begin(), cases.end(),
                              [](const OpCase* c) { return c->threads_only || !c->large.empty(); }))
          << "no case of op \"" << op << "\" is large";
    }
}

TEST(Coverage, EveryOpIsRunEmpty) {
  const auto is_empty = [](const Array& a) { return a.shape.size() == 0; };
  for (const auto& [op, cases] : cases_by_op()) {
    bool found = op.empty();
    for (const OpCase* c : cases)
      found =
          found ||
          std::any_of(c->edge_shapes.begin(), c->edge_shapes.end(), [](const std::vector<Shape>& shapes) {
            return std::any_of(shapes.begin(), shapes.end(), [](const Shape& s) { return s.size() == 0; });
          });
    for (const OpCase* c : cases) {
      if (found) break;  // references take long
      const Arrays in = inputs_of(*c, c->dtypes[0]);
      const Arrays out = c->reference(in);
      found = found || std::any_of(in.begin(), in.end(), is_empty) ||
              std::any_of(out.begin(), out.end(), is_empty);
    }
    EXPECT_TRUE(found) << "no case of op \"" << op << "\" has an empty tensor";
  }
}

}  // namespace
}  // namespace lockstep::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  // Kernels run on one thread, except where a check asks for more: small tensors gain nothing from a team.
  lockstep::set_logical_cpus({.threads = 1});
  lockstep::testing::register_tests();
  return RUN_ALL_TESTS();
}
