"""A public header includes only other public headers (as "lockstep/room/x.h") and the C++ standard library.

So a program that uses the installed package needs no third-party package, and sees nothing of src/.
"""

import tree

STANDARD = frozenset("""
    algorithm any array atomic barrier bit bitset charconv chrono codecvt compare complex concepts condition_variable
    coroutine deque exception execution filesystem format forward_list fstream functional future initializer_list
    iomanip ios iosfwd iostream istream iterator latch limits list locale map memory memory_resource mutex new numbers
    numeric optional ostream queue random ranges ratio regex scoped_allocator semaphore set shared_mutex
    source_location span sstream stack stdexcept stop_token streambuf string string_view strstream syncstream
    system_error thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant
    vector version
    cassert cctype cerrno cfenv cfloat cinttypes climits clocale cmath csetjmp csignal cstdarg cstddef cstdint cstdio
    cstdlib cstring ctime cuchar cwchar cwctype
    """.split())


def check(root, arguments=None):
    problems = []
    for path in filter(tree.is_public, tree.cpp_files(root)):
        for include in tree.includes(root, path):
            if include.angled and include.text in STANDARD:
                continue
            if not include.angled and include.target and include.target == f"include/{include.text}":
                continue
            if not include.angled and include.text.startswith("lockstep/") and not include.target:
                problems.append(f"{path}:{include.line}: {include} does not exist")
                continue
            what = ("a public header, to be written \"lockstep/...\"" if include.target and
                    tree.is_public(include.target) else
                    "a private header" if include.target else "neither a public header nor the C++ standard library")
            problems.append(f"{path}:{include.line}: {include} is {what}; "
                            "keep it out of the interface (a forward declaration, or a source file)")
    return problems


if __name__ == "__main__":
    tree.run("public_includes", check)
