# Brought into the lab with both tenders, test_hello.hvt, and the libraries of solo5-hvt in /lib.
# Ten starts by each, in hundredths of a second; ten rounds.
up() { read -r a b < /proc/uptime; echo "${a%.*}${a#*.}"; }
go() { s=$(up); for i in 1 2 3 4 5 6 7 8 9 10; do "$@" > /dev/null 2>&1; done; e=$(up); echo $((e - s)); }
for i in 1 2 3 4 5 6 7 8 9 10; do
echo "ours $(go outboard-tender --mem=64 -- /lab/test_hello.hvt) stock $(go solo5-hvt --mem=64 -- /lab/test_hello.hvt)"
done
