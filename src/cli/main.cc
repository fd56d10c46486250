// The command-line tool: one file per subcommand.
#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <new>
#include <string_view>
#include <vector>

#include "cli/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/errors.h"
#include "lockstep/base/json.h"
#include "lockstep/base/terminal.h"

namespace {

using lockstep::cli::complain;

// A file that is opened must not become standard output because that was closed. Reading from nothing, and
// writing to what cannot be written, are errors that are told.
void open_what_was_closed() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor)
    if (fcntl(descriptor, F_GETFD) < 0) open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

// The command that the words have reached.
const CLI::App& innermost(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : innermost(*parsed.back());
}

// What is wrong with a word that nothing reads; empty where there is none.
std::string about_unread_word(const CLI::App& app) {
  const CLI::App& command = innermost(app);
  std::vector<std::string> unread = app.remaining(true);
  if (unread.empty()) return "";
  const std::string& word = unread.front();
  std::vector<std::string> known;
  const bool is_option = word.starts_with('-');
  if (is_option) {
    for (const CLI::Option* option : command.get_options())
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  } else {
    for (const CLI::App* other :
         command.get_subcommands([](const CLI::App* a) { return !a->get_group().empty(); }))
      known.push_back(other->get_name());
  }
  if (known.empty()) return "there is one word too many: \"" + word + "\"";
  const std::string near = lockstep::nearest_spelling(word.substr(0, word.find('=')), known);
  std::string text = std::string("there is no ") + (is_option ? "option" : "command") + " \"" + word + "\"";
  if (!near.empty()) return text + "; did you mean \"" + near + "\"?";
  text += "; there are ";
  for (size_t i = 0; i < known.size(); ++i) text += (i == 0 ? "" : ", ") + known[i];
  return text;
}

// The words behind "--" of lockstep launch are another program's: they are taken from the line before it is
// parsed.
std::vector<std::string> program_behind_mark(int& argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "launch") return {};
  char** const end = argv + argc;
  char** const mark =
      std::find_if(argv, end, [](const char* word) { return std::string_view(word) == "--"; });
  if (mark == end) return {};
  argc = static_cast<int>(mark - argv);
  return {mark + 1, end};
}

// The words behind the script of lockstep run are the script's: they are taken from the line before it is
// parsed.
std::vector<std::string> words_of_script(int& argc, char** argv) {
  if (argc < 2 || std::string_view(argv[1]) != "run") return {};
  int script = 2;
  // Both options that take a number may have it as a word of its own.
  while (script < argc && argv[script][0] == '-')
    script += std::string_view(argv[script]) == "--devices" || std::string_view(argv[script]) == "--threads"
                  ? 2
                  : 1;
  if (script >= argc) return {};
  std::vector<std::string> words(argv + script + 1, argv + argc);
  argc = script + 1;
  return words;
}

int parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return -1;
  } catch (const CLI::CallForHelp&) {
    const std::string help = app.help();
    const std::optional<int> columns = lockstep::terminal::columns();
    lockstep::cli::print_result(lockstep::terminal::wrapped(help, columns.value_or(100)));
    return 0;
  } catch (const CLI::CallForVersion& version) {
    lockstep::cli::print_result(std::string(version.what()) + "\n");
    return 0;
  } catch (const CLI::ParseError& error) {
    const std::string unread = about_unread_word(app);
    const CLI::App& command = innermost(app);
    std::string name = command.get_name();
    for (const CLI::App* outer = command.get_parent(); outer; outer = outer->get_parent())
      name.insert(0, outer->get_name() + " ");
    complain((unread.empty() ? error.what() : unread) + std::string("\nlook at: ") + name + " --help");
    return 2;
  }
}

std::string text_of(const lockstep::Error& error) {
  std::string text = error.message();
  for (const std::string& note : error.notes()) text += "\n" + note;
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  open_what_was_closed();
  // Whatever goes wrong is one line and a status, never an abort.
  try {
    CLI::App app{"Lockstep trains neural networks on all devices of a machine, in lockstep.", "lockstep"};
    app.require_subcommand(1);
    app.set_version_flag("--version", "lockstep 0.1.0");
    app.footer("Every command explains itself with --help.");
    int status = 0;
    lockstep::cli::add_train(app, status, {argv + 1, argv + argc});
    lockstep::cli::add_evaluate(app, status);
    lockstep::cli::add_predict(app, status);
    lockstep::cli::add_convert(app, status);
    lockstep::cli::add_launch(app, status, program_behind_mark(argc, argv));
    lockstep::cli::add_script(app, status, words_of_script(argc, argv));
    lockstep::cli::add_report(app, status);
    lockstep::cli::add_watch(app, status);
    lockstep::cli::add_scale(app, status);
    lockstep::cli::add_plan(app, status);
    lockstep::cli::add_doctor(app, status);
    lockstep::cli::add_checkpoint(app, status);
    const int wrong = parse(app, argc, argv);
    return wrong >= 0 ? wrong : status;
  } catch (const lockstep::errors::UnavailableError& error) {
    complain(text_of(error));
    return lockstep::errors::kUnavailableStatus;
  } catch (const lockstep::Error& error) {
    complain(text_of(error));
  } catch (const std::bad_alloc&) {
    complain("there is not enough memory for this");
  } catch (const std::exception& error) {
    complain(error.what());
  }
  return 1;
}
